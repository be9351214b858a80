"""One worker seen from the harness: start it, talk to it, never leave it behind."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import threading
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import IO, Any

from suite.runtime.native import WorkerCommand

_DEBUG_LIMIT = 4 << 20
_LINE_LIMIT = 8 << 20


class WorkerFailure(Exception):
    """A repeat that did not complete: a typed code, the phase it failed in, and how the process ended."""

    def __init__(self, code: str, phase: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.phase = phase
        self.message = message
        self.exit_code: int | None = None
        self.signal: int | None = None


class WorkerProcess:
    """A started worker. Use as a context manager: leaving it ends the process group, whatever happened."""

    def __init__(self, command: WorkerCommand, debug_file: Path) -> None:
        self.phase = "start"
        self._token = secrets.token_hex(8)
        self._debug_left = _DEBUG_LIMIT
        self._debug = debug_file.open("ab")
        self._process = subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.directory,
            env=dict(command.environment),
            start_new_session=True,  # Ctrl-C reaches the harness alone, which then ends the worker
            close_fds=True,
        )
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        stdout = self._pipe(self._process.stdout)
        os.set_blocking(stdout.fileno(), False)
        self._selector.register(stdout, selectors.EVENT_READ)
        self._drain = threading.Thread(target=self._keep_debug_text, name="debug text", daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def configure(self, job: dict[str, Any]) -> None:
        """Send the one line of configuration."""
        self._write({"token": self._token, "job": job})

    def command(self, name: str, **fields: Any) -> None:
        """Send one command."""
        self._write({"command": name, **fields})

    def receive(self, timeout_s: float) -> tuple[dict[str, Any], int]:
        """The next event and the CLOCK_MONOTONIC time of its receipt in ns; WorkerFailure if none comes."""
        until = monotonic() + timeout_s
        prefix = self._token.encode() + b" "
        while True:
            line, received = self._read_line(until, timeout_s)
            if not line.startswith(prefix):
                self._keep(line + b"\n")
                continue
            event: dict[str, Any] = json.loads(line[len(prefix) :])
            if event["event"] == "phase":
                self.phase = event["name"]
            elif event["event"] == "fault":
                raise self._ended(WorkerFailure(event["code"], event["phase"], event["message"]))
            return event, received

    def expect(self, name: str, timeout_s: float) -> tuple[dict[str, Any], int]:
        """The next event of kind ``name``; phases in between are noted, anything else is a protocol fault."""
        while True:
            event, received = self.receive(timeout_s)
            if event["event"] == name:
                return event, received
            if event["event"] != "phase":
                raise WorkerFailure("protocol", self.phase, f"expected {name}, found {event['event']}")

    def end(self) -> None:
        """End the process group, politely by closing its stdin, then by force; no process stays behind."""
        with contextlib.suppress(OSError):
            self._pipe(self._process.stdin).close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._selector.close()
            self._pipe(self._process.stdout).close()
            self._drain.join(timeout=2)
            self._debug.close()

    def _read_line(self, until: float, timeout_s: float) -> tuple[bytes, int]:
        stdout = self._pipe(self._process.stdout)
        while True:
            head, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return head, monotonic_ns()
            if len(self._buffer) > _LINE_LIMIT:
                raise WorkerFailure("protocol", self.phase, f"a line is longer than {_LINE_LIMIT} bytes")
            if not self._selector.select(timeout=max(0.0, until - monotonic())):
                message = f"nothing heard in the phase {self.phase} for {timeout_s:.0f} s"
                raise WorkerFailure("timed_out", self.phase, message)
            chunk = stdout.read(1 << 16)
            if chunk == b"":
                raise self._ended(None)
            self._buffer += chunk or b""

    def _ended(self, fault: WorkerFailure | None) -> WorkerFailure:
        """How the process ended, as a failure; a fault that the worker told itself keeps its own words."""
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return fault or WorkerFailure("protocol", self.phase, "the worker closed its output and went on")
        killed = status < 0
        if fault is None:
            code = "killed" if killed else "crashed"
            how = f"signal {-status}" if killed else f"exit code {status}"
            fault = WorkerFailure(code, self.phase, f"the worker ended in the phase {self.phase} with {how}")
        fault.exit_code = None if killed else status
        fault.signal = -status if killed else None
        return fault

    def _write(self, message: dict[str, Any]) -> None:
        stdin = self._pipe(self._process.stdin)
        try:
            stdin.write(json.dumps(message, allow_nan=False).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._ended(None) from None

    def _keep_debug_text(self) -> None:
        for line in self._pipe(self._process.stderr):
            self._keep(line)

    def _keep(self, text: bytes) -> None:
        if self._debug_left > 0 and not self._debug.closed:
            self._debug.write(text[: self._debug_left])
            self._debug.flush()
            self._debug_left -= len(text)

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            raise RuntimeError("the worker was started without pipes")
        return pipe
