"""The worker's end of the protocol: JSON lines on pipes, whatever the runtime in between.

In:  one line of configuration, then commands; end of file ends the worker, so no orphan survives the harness.
Out: lines that begin with the token of the configuration; where a parent process forwards them for several
ranks, the number of the rank follows. Everything else that any library prints lands on
stderr, which is debug text and never evidence.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

PROTOCOL = 1
_ORPHANED = 4  # exit status nobody reads: the harness is gone


def _lines(descriptor: int) -> Iterator[bytes]:
    """Lines of a descriptor. Not ``sys.stdin``: a thread asleep in its lock breaks the interpreter's exit."""
    rest = b""
    while chunk := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


class Channel:
    """Owns stdin and a private copy of stdout from the first moment on."""

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
        """Take commands from now on: for :meth:`wait`, or by ``handle``, which is called with each line."""
        # The thread sleeps in read(2): it takes no processor time and no interpreter lock in the window.
        threading.Thread(
            target=self._listen, args=(handle or self._keep,), name="commands", daemon=True
        ).start()

    def _listen(self, handle: Callable[[bytes], None]) -> None:
        for line in self._lines:
            handle(line)
        os._exit(_ORPHANED)

    def _keep(self, line: bytes) -> None:
        self._commands.put(json.loads(line))

    def send(self, event: str, **fields: Any) -> None:
        """Send one event. Never called between the edges of the window."""
        text = json.dumps({"event": event, **fields}, allow_nan=False, separators=(",", ":"))
        self._write(text.encode())

    def relay(self, rank: int, text: bytes) -> None:
        """Send an event of ``rank`` as it was written."""
        self._write(b"%d %b" % (rank, text))

    def _write(self, text: bytes) -> None:
        data = self._token + b" " + text + b"\n"
        while data:
            data = data[os.write(self._out, data) :]

    def phase(self, name: str) -> None:
        """Say which phase begins, so that a failure can be placed."""
        self.phase_name = name
        self.send("phase", name=name)

    def wait(self, command: str) -> dict[str, Any]:
        """Block until the harness sends ``command``."""
        message = self._commands.get()
        if message.get("command") != command:
            raise RuntimeError(
                f"protocol: expected the command {command!r}, found {message.get('command')!r}"
            )
        return message
