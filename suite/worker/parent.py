"""The parent process of a node with several ranks: it starts them, forwards their events, and ends them.

Each rank is another ``python -m suite.worker`` with a separate configuration line, token and pipe. The parent
writes the rank before each line that it forwards: a rank cannot send events of another one. With one rank
there is no parent: the worker is the rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import IO, Any

from suite.worker.channel import Channel
from suite.worker.group import STRANDED

_LINE_LIMIT = 8 << 20
_CHUNK = 1 << 16
_GRACE_S = 2.0  # to find the rank that failed after another rank ended because it lost that one
_DONE = b'{"event":"done"'


@dataclass
class _Rank:
    """One rank as the parent sees it."""

    number: int
    process: subprocess.Popen[bytes]
    prefix: bytes
    rest: bytes = b""
    done: bool = False

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe of its commands."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe of its events."""
        assert self.process.stdout is not None
        return self.process.stdout


def run_ranks(channel: Channel, numbers: Sequence[int]) -> int:
    """Run the ranks ``numbers`` of this node to their end; exit status 0 only if each has sent ``done``.

    If a rank fails, the parent kills all ranks and sends an event ``ended`` that names the rank.
    """
    ranks = _start(channel.configuration["job"], numbers)

    def send_to_all(line: bytes) -> None:
        for rank in ranks:
            _write(rank, line)

    channel.listen(send_to_all)
    try:
        ended = _forward(channel, ranks)
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.wait()
    if ended is None:
        return 0
    status = ended.process.returncode
    channel.relay(ended.number, json.dumps({"event": "ended", "status": status}).encode())
    return 1


def shares(cores: Sequence[int], count: int) -> list[list[int]]:
    """Split ``cores`` into ``count`` contiguous parts; with fewer cores than parts, one core each, cyclic."""
    total = len(cores)
    if total < count:
        return [[cores[rank % total]] for rank in range(count)]
    return [list(cores[rank * total // count : (rank + 1) * total // count]) for rank in range(count)]


def _start(job: dict[str, Any], numbers: Sequence[int]) -> list[_Rank]:
    pairs = [socket.socketpair() for _ in numbers[1:]]
    peers = [[near for near, _ in pairs], *([far] for _, far in pairs)]
    allowed = os.sched_getaffinity(0)
    ranks = []
    for local, (number, sockets, cores) in enumerate(
        zip(numbers, peers, shares(sorted(allowed), len(numbers)), strict=True)
    ):
        kind = str(job["device"]).partition(":")[0]
        device = kind if kind == "cpu" else f"{kind}:{local}"
        rank_job = {**job, "rank": number, "local_rank": local, "device": device}
        descriptors = [one.fileno() for one in sockets]
        os.sched_setaffinity(0, cores)  # of this thread; the new process inherits it
        try:
            # The arguments of this process: the same interpreter with the same options.
            process = subprocess.Popen(
                [sys.executable, *sys.orig_argv[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=descriptors,
            )
        finally:
            os.sched_setaffinity(0, allowed)
        token = secrets.token_hex(8)
        rank = _Rank(number, process, token.encode() + b" ")
        ranks.append(rank)
        _write(rank, json.dumps({"token": token, "job": rank_job, "peers": descriptors}).encode())
    for pair in pairs:  # only the ranks keep them open: the others notice the end of a rank
        for end in pair:
            end.close()
    return ranks


def _write(rank: _Rank, line: bytes) -> None:
    with contextlib.suppress(OSError):  # the rank has ended, which _forward sees at the end of its output
        rank.stdin.write(line + b"\n")
        rank.stdin.flush()


def _forward(channel: Channel, ranks: Sequence[_Rank]) -> _Rank | None:
    """Forward lines until all ranks have ended; returns the rank that failed first, None if none failed."""
    stranded: _Rank | None = None
    until = 0.0
    with selectors.DefaultSelector() as selector:
        for each in ranks:
            selector.register(each.stdout, selectors.EVENT_READ, each)
        while selector.get_map():
            ready = selector.select(None if stranded is None else max(0.0, until - monotonic()))
            if not ready and stranded is not None:
                return stranded
            for key, _ in ready:
                rank: _Rank = key.data
                chunk = os.read(rank.stdout.fileno(), _CHUNK)
                if chunk:
                    _forward_lines(channel, rank, chunk)
                    continue
                selector.unregister(rank.stdout)
                status = rank.process.wait()
                if status == STRANDED and stranded is None:
                    stranded, until = rank, monotonic() + _GRACE_S
                elif status != STRANDED and (status or not rank.done):
                    return rank
    return stranded


def _forward_lines(channel: Channel, rank: _Rank, chunk: bytes) -> None:
    *whole, rank.rest = (rank.rest + chunk).split(b"\n")
    if len(rank.rest) > _LINE_LIMIT:
        raise RuntimeError(f"protocol: rank {rank.number} wrote a line of more than {_LINE_LIMIT} bytes")
    for line in whole:
        if line.startswith(rank.prefix):
            text = line[len(rank.prefix) :]
            rank.done = rank.done or text.startswith(_DONE)
            channel.relay(rank.number, text)
        else:  # a library wrote to the descriptor directly
            os.write(2, line + b"\n")
