"""The parent process of the ranks of one node: it starts them, forwards their events, and ends them.

Each rank is another ``python -m suite.worker`` with a separate configuration line, token and pipe. The parent
writes the rank before each line that it forwards: a rank cannot send events of another one. In a run with one
rank there is no parent: the worker is the rank.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import IO, Any

from suite.common.processes import die_with
from suite.contract import Key, Network
from suite.contract.network import unused_ports
from suite.contract.traits import traits_of
from suite.worker.channel import Channel
from suite.worker.group import STRANDED

_LINE_LIMIT = 8 << 20
_CHUNK = 1 << 16
_GRACE_S = 2.0  # to find the rank that failed after another rank ended because it lost that one
_CHECK_S = 5.0
_STOPPED_S = 20.0  # a rank that is stopped for longer does not come back in time
_LOOPBACK = "127.0.0.1"
_DONE, _PHASE = b'{"event":"done"', b'{"event":"phase"'


@dataclass
class _Rank:
    """One rank as the parent sees it."""

    number: int
    process: subprocess.Popen[bytes]
    prefix: bytes
    rest: bytes = b""
    done: bool = False
    phase: str = "start"
    stopped_at: float | None = None  # when it was first found stopped

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

    def is_stopped(self) -> bool:
        """Whether the process, at each check of the last 20 s, was stopped by a signal or a debugger."""
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            state = ""
        if state not in ("T", "t"):
            self.stopped_at = None
            return False
        now = monotonic()
        self.stopped_at = now if self.stopped_at is None else self.stopped_at
        return now - self.stopped_at >= _STOPPED_S


@dataclass
class RunningHelpers:
    """Processes that the ranks exchange gradients through, and the variables of the ranks."""

    variables: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def failed(self) -> str:
        """How a process has failed; empty if none has. After the last rank they end with status 0."""
        statuses = [process.poll() for process in self.processes]
        return next((f"one with status {status}" for status in statuses if status), "")


def run_ranks(channel: Channel, numbers: Sequence[int]) -> int:
    """Run the ranks ``numbers`` of this node to their end; exit status 0 only if each has sent ``done``.

    If a rank fails, the parent kills all ranks and sends an event ``ended`` that names the rank, or ``fault``
    for a rank that the others waited for in vain, that is stopped, or whose helper process has ended.
    """
    job = channel.configuration["job"]
    with contextlib.ExitStack() as stack:
        helping = RunningHelpers()
        network = None if job.get("network") is None else Network(**job["network"])
        if Key(**job["key"]).exchanges:
            framework, size = job["key"]["framework"], job["world_size"]
            helping = stack.enter_context(helpers(framework, size, network, job.get("node", 0)))
        ranks = _start(job, numbers, helping.variables, early=channel.configuration.get("early", False))

        def send_to_all(line: bytes) -> None:
            for rank in ranks:
                _write(rank, line)

        channel.listen(send_to_all)
        try:
            ended, message = _forward(channel, ranks, helping)
            if ended is not None and ended.process.poll() is None:
                message = message or "expected a rank that answers; the other ranks waited for it in vain"
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()
    if ended is None:
        return 0
    event: dict[str, Any] = {"event": "ended", "status": ended.process.returncode}
    if message:
        event = {"event": "fault", "code": "crashed", "phase": ended.phase, "message": message}
    channel.relay(ended.number, json.dumps(event).encode())
    return 1


def by_core(processors: Iterable[int], root: Path = Path("/sys/devices/system/cpu")) -> list[int]:
    """``processors`` by NUMA node, socket and core, so that a contiguous part of them has whole cores.

    Linux often numbers the second threads of all cores after the first ones. Without a description of the
    processors in ``root`` they are in the order of their numbers.
    """

    def locality(number: int) -> tuple[int, ...]:
        folder = root / f"cpu{number}"
        node = min((int(one.name[len("node") :]) for one in folder.glob("node[0-9]*")), default=0)
        names = ("physical_package_id", "core_id")
        return (node, *(int((folder / "topology" / name).read_text()) for name in names), number)

    try:
        return sorted(processors, key=locality)
    except (OSError, ValueError):
        return sorted(processors)


def shares(cores: Sequence[int], count: int) -> list[list[int]]:
    """Split ``cores`` into ``count`` contiguous parts; with fewer cores than parts, one core each, cyclic."""
    total = len(cores)
    if total < count:
        return [[cores[rank % total]] for rank in range(count)]
    return [list(cores[rank * total // count : (rank + 1) * total // count]) for rank in range(count)]


@contextlib.contextmanager
def helpers(
    framework: str, world_size: int, network: Network | None = None, node: int = 0
) -> Iterator[RunningHelpers]:
    """The helper processes of ``framework`` for the length of the context.

    Over several nodes, those of node 0 serve the ranks of all nodes.
    """
    wanted = traits_of(framework).helpers
    if wanted is None:
        yield RunningHelpers()
        return
    if network is None:
        (port,) = unused_ports(_LOOPBACK, 1)
        values: dict[str, str | int] = {"server": _LOOPBACK, "address": _LOOPBACK, "port": port}
    else:
        values = {"server": network.node_0, "address": network.address, "port": network.exchange_port}
    values["world_size"] = world_size
    shared = {name: value.format(**values) for name, value in wanted.ranks.items()}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for own in wanted.processes if node == 0 else ():
            # Otherwise they would run on after a parent that is killed.
            program = f"from {die_with.__module__} import die_with; die_with({os.getpid()}); {wanted.program}"
            environment = {**os.environ, **shared, **own}
            # Standard output is the pipe of the ranks' events.
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=2, env=environment
                )
            )
        yield RunningHelpers(shared, processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _start(
    job: dict[str, Any], numbers: Sequence[int], variables: Mapping[str, str], *, early: bool
) -> list[_Rank]:
    # Ranks of other nodes have no socket of their parent: they connect to rank 0.
    pairs = [socket.socketpair() for _ in numbers[1:]] if numbers[0] == 0 else []
    peers: list[list[socket.socket]] = [[near for near, _ in pairs], *([far] for _, far in pairs)]
    peers += [[] for _ in numbers[len(peers) :]]
    allowed = os.sched_getaffinity(0)
    ranks = []
    for local, (number, sockets, cores) in enumerate(
        zip(numbers, peers, shares(by_core(allowed), len(numbers)), strict=True)
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
                env={**os.environ, **variables},
            )
        finally:
            os.sched_setaffinity(0, allowed)
        token = secrets.token_hex(8)
        rank = _Rank(number, process, token.encode() + b" ")
        ranks.append(rank)
        configuration = {"token": token, "job": rank_job, "peers": descriptors, "early": early}
        _write(rank, json.dumps(configuration).encode())
    for pair in pairs:  # only the ranks keep them open: the others notice the end of a rank
        for end in pair:
            end.close()
    return ranks


def _write(rank: _Rank, line: bytes) -> None:
    with contextlib.suppress(OSError):  # the rank has ended, which _forward sees at the end of its output
        rank.stdin.write(line + b"\n")
        rank.stdin.flush()


def _forward(channel: Channel, ranks: Sequence[_Rank], helping: RunningHelpers) -> tuple[_Rank | None, str]:
    """Forward lines until all ranks have ended; returns the rank that failed first, None if none failed.

    The message is empty for a rank that ended by itself. If ranks end because they lost another one, and one
    alone still runs, that is the one.
    """
    stranded: _Rank | None = None
    until = 0.0
    with selectors.DefaultSelector() as selector:
        for each in ranks:
            selector.register(each.stdout, selectors.EVENT_READ, each)
        while selector.get_map():
            ready = selector.select(_CHECK_S if stranded is None else max(0.0, until - monotonic()))
            if not ready and stranded is not None:
                running = [rank for rank in ranks if rank.process.poll() is None]
                return (running[0] if len(running) == 1 else stranded), ""
            if not ready:
                for rank in ranks:
                    if rank.is_stopped():
                        return rank, f"expected a rank that runs, found it stopped for {_STOPPED_S:.0f} s"
                if failed := helping.failed():
                    return ranks[0], f"expected the processes that exchange gradients to run, found {failed}"
            for key, _ in ready:
                rank = key.data
                chunk = os.read(rank.stdout.fileno(), _CHUNK)
                if chunk:
                    _forward_lines(channel, rank, chunk)
                    continue
                selector.unregister(rank.stdout)
                status = rank.process.wait()
                if status == STRANDED and stranded is None:
                    stranded, until = rank, monotonic() + _GRACE_S
                elif status != STRANDED and (status or not rank.done):
                    return rank, ""
    return stranded, ""


def _forward_lines(channel: Channel, rank: _Rank, chunk: bytes) -> None:
    *whole, rank.rest = (rank.rest + chunk).split(b"\n")
    if len(rank.rest) > _LINE_LIMIT:
        raise RuntimeError(f"protocol: rank {rank.number} wrote a line of more than {_LINE_LIMIT} bytes")
    for line in whole:
        if line.startswith(rank.prefix):
            text = line[len(rank.prefix) :]
            rank.done = rank.done or text.startswith(_DONE)
            if text.startswith(_PHASE):
                rank.phase = channel.phase_name = json.loads(text)["name"]  # also of a fault of the parent
            channel.relay(rank.number, text)
        else:  # a library wrote to the descriptor directly
            os.write(2, line + b"\n")
