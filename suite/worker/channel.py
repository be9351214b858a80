"""The worker's end of the protocol: JSON lines on pipes, the same for every runtime.

In:  one line of configuration, then commands; end of file ends the worker, so no orphan survives the harness.
Out: lines that begin with the token of the configuration; if a parent process forwards them for several
ranks, the rank follows. All other output of libraries goes to stderr: it is debug text and no evidence.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any

PROTOCOL = 1
_ORPHANED = 4  # exit status after the end of the harness


def _lines(descriptor: int) -> Iterator[bytes]:
    """Lines of a descriptor. Not ``sys.stdin``: a thread that holds its lock blocks the exit of Python."""
    rest = b""
    while chunk := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


class Channel:
    """The pipes of the worker: takes over stdin, and keeps a private copy of stdout for events."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._lines = _lines(0)
        line = next(self._lines, None)
        if line is None:
            raise SystemExit(_ORPHANED)
        self.configuration: dict[str, Any] = json.loads(line)
        self._token = str(self.configuration["token"]).encode()
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.phase_name = "import"

    def listen(self, handle: Callable[[bytes], None] | None = None) -> None:
        """Start to read commands: for :meth:`wait`, or with ``handle``, which is called with each line."""
        # The thread blocks in read(2): it uses no CPU time and no interpreter lock in the window.
        threading.Thread(
            target=self._listen, args=(handle or self._enqueue,), name="commands", daemon=True
        ).start()

    def _listen(self, handle: Callable[[bytes], None]) -> None:
        for line in self._lines:
            handle(line)
        os._exit(_ORPHANED)

    def _enqueue(self, line: bytes) -> None:
        self._commands.put(json.loads(line))

    def send(self, event: str, **fields: Any) -> None:
        """Send one event; the parent of ranks sends it as its first rank's.

        Never called between window start and window end.
        """
        text = json.dumps({"event": event, **fields}, allow_nan=False, separators=(",", ":")).encode()
        if ranks := self.configuration.get("ranks"):
            self.relay(ranks[0], text)
        else:
            self._write(text)

    def relay(self, rank: int, text: bytes) -> None:
        """Forward an event of ``rank`` unchanged."""
        self._write(b"%d %b" % (rank, text))

    def _write(self, text: bytes) -> None:
        data = self._token + b" " + text + b"\n"
        while data:
            data = data[os.write(self._out, data) :]

    def phase(self, name: str) -> None:
        """Report the phase that begins, so that a failure can be attributed to it."""
        self.phase_name = name
        self.send("phase", name=name)

    def begin(self, started: int) -> int:
        """Return when the repeat of this worker began (CLOCK_MONOTONIC, ns): at its start, ``started``.

        A worker that the harness starts early, beside the set-up of the repeat before, reports here that it
        has imported its framework, and waits, idle, for its own repeat.
        """
        if not self.configuration.get("early"):
            return started
        self.send("imported")
        self.wait("begin")
        return monotonic_ns()

    def wait(self, command: str) -> dict[str, Any]:
        """Block until the harness sends ``command``."""
        message = self._commands.get()
        if message.get("command") != command:
            raise RuntimeError(
                f"protocol: expected the command {command!r}, found {message.get('command')!r}"
            )
        return message
