"""A worker process: the harness starts it, exchanges events with it, and always ends it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import selectors
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import IO, Any

from suite.containers.engines.attestation import ContainerExit
from suite.containers.engines.native import WorkerCommand

_DEBUG_LIMIT = 4 << 20
_LINE_LIMIT = 8 << 20
_CHUNK = 1 << 16
_EXIT_EVENT_S = 10.0
_CLIENT_FAILED = (125, 126, 127)  # exit codes of an engine's client if the container does not start
_PHASE = re.compile("[a-z_]{1,32}")
_FIELDS = {  # required fields of events; other fields are checked where they are used
    "phase": ("name",),
    "hello": ("facts",),
    "fault": ("code", "phase", "message"),
    "window_close": ("open_ns", "close_ns"),
    "steps": ("timestamps", "dispatched", "losses", "gradient_norms", "outputs", "batches"),
    "repeat_end": ("window", "initial", "final"),
    "probed": ("peak_rss_bytes", "imported_bytes"),
    "ended": ("status",),
}
_FAULTS = ("crashed", "out_of_memory", "protocol", "non_finite_loss", "io", "dataset", "environment")


class WorkerFailure(Exception):
    """A repeat that did not complete: a typed code, the phase, a message, and how the process ended."""

    def __init__(self, code: str, phase: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.phase = phase
        self.message = message
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.rank: int | None = None  # if one of several ranks failed
        self.node: int | None = None


class WorkerProcess:
    """A started worker. Use it as a context manager: on exit it ends the process group.

    ``ended`` returns how the worker's container ended (None: native); ``remove`` removes the container.
    """

    def __init__(
        self,
        command: WorkerCommand,
        debug_file: Path,
        ended: Callable[[], ContainerExit | None] = lambda: None,
        remove: Callable[[], None] = lambda: None,
    ) -> None:
        self.phase = "start"  # the last phase that a rank entered
        self._ranks: tuple[int, ...] = (0,)
        self._phases: dict[int, str] = {}
        self._waiting: dict[int, deque[dict[str, Any]]] = {}
        self._container_exit = ended
        self._remove = remove
        self._last_text = b""
        self._token = secrets.token_hex(8)
        self._debug_left = _DEBUG_LIMIT
        self._debug = debug_file.open("ab", buffering=0)
        try:
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
        except OSError as error:
            self._debug.close()
            message = f"the worker's program cannot be started: {error.strerror}"
            raise WorkerFailure("environment", self.phase, message) from error
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe(self._process.stdout), selectors.EVENT_READ)
        self._drain = threading.Thread(target=self._drain_stderr, name="debug text", daemon=True)
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
        """Send the configuration of the job and its ranks."""
        self._ranks = tuple(range(job.get("world_size", 1)))
        self._waiting = {rank: deque() for rank in self._ranks}
        self._write({"token": self._token, "job": job, "ranks": list(self._ranks)})

    def command(self, name: str, **fields: Any) -> None:
        """Send one command."""
        self._write({"command": name, **fields})

    def receive(self, timeout_s: float) -> tuple[dict[str, Any], int]:
        """The next event and the CLOCK_MONOTONIC time of its receipt in ns; WorkerFailure without one."""
        _, event, received = self._receive(timeout_s)
        return event, received

    def _receive(self, timeout_s: float) -> tuple[int, dict[str, Any], int]:
        """The rank that sent the event, and the result of :meth:`receive`."""
        until = monotonic() + timeout_s
        prefix = self._token.encode() + b" "
        while True:
            line, received = self._read_line(until, timeout_s)
            if not line.startswith(prefix):
                self._write_debug(line + b"\n")
                continue
            rank, text = self._rank_of(line[len(prefix) :])
            try:
                return rank, self._checked_event(rank, text), received
            except WorkerFailure as failure:
                raise self._with_rank(rank, failure) from failure.__cause__

    def _checked_event(self, rank: int, text: bytes) -> dict[str, Any]:
        """The event of ``rank`` in ``text``; WorkerFailure if it reports a failure."""
        event = self._parse(text)
        if event["event"] == "phase":
            self._enter(rank, event["name"])
        elif event["event"] == "fault":
            self._enter(rank, event["phase"])
            code = event["code"] if event["code"] in _FAULTS else "crashed"
            raise self._ended(WorkerFailure(code, self.phase, str(event["message"])))
        elif event["event"] == "ended" and len(self._ranks) > 1:
            raise self._rank_ended(rank, event["status"])
        return event

    def expect_all(self, name: str, timeout_s: float) -> tuple[list[dict[str, Any]], int]:
        """The next event of every rank, all of kind ``name``, in rank order, and when the last one came.

        Further events of a rank that is ahead of another one are queued.
        """
        received = 0
        while not all(self._waiting.values()):
            rank, event, received = self._receive(timeout_s)
            if event["event"] != "phase":
                self._waiting[rank].append(event)
        found = [self._waiting[rank].popleft() for rank in self._ranks]
        for rank, event in enumerate(found):
            if event["event"] != name:
                failure = WorkerFailure("protocol", self.phase, f"expected {name}, found {event['event']}")
                raise self._with_rank(rank, failure)
        return found, received

    def expect(self, name: str, timeout_s: float) -> tuple[dict[str, Any], int]:
        """The next event of kind ``name``; events ``phase`` are skipped, any other is a protocol failure."""
        while True:
            event, received = self.receive(timeout_s)
            if event["event"] == name:
                return event, received
            if event["event"] != "phase":
                raise WorkerFailure("protocol", self.phase, f"expected {name}, found {event['event']}")

    def end(self) -> None:
        """End the process group: close its stdin, then kill what still runs after 2 s."""
        try:
            with contextlib.suppress(OSError):
                self._pipe(self._process.stdin).close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._remove()
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
                message = f"no event in the phase {self.phase} for {timeout_s:.0f} s"
                raise WorkerFailure("timed_out", self.phase, message)
            chunk = os.read(stdout.fileno(), _CHUNK)  # unbuffered: the selector does not see buffered data
            if not chunk:
                raise self._ended(None)
            self._buffer += chunk

    def _parse(self, text: bytes) -> dict[str, Any]:
        """The event in ``text``, with its required fields."""
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise WorkerFailure("protocol", self.phase, "expected an event, found another line")
        if missing := [name for name in _FIELDS.get(event["event"], ()) if name not in event]:
            raise WorkerFailure(
                "protocol", self.phase, f"the event {event['event']} has no field {missing[0]}"
            )
        return event

    def _rank_of(self, text: bytes) -> tuple[int, bytes]:
        """The rank that sent ``text``, and the event: with several ranks the line begins with the rank."""
        if len(self._ranks) == 1:
            return 0, text
        number, _, rest = text.partition(b" ")
        if not number.isdigit() or int(number) not in self._waiting:
            raise WorkerFailure("protocol", self.phase, "expected a rank, found something else")
        return int(number), rest

    def _with_rank(self, rank: int, failure: WorkerFailure) -> WorkerFailure:
        """``failure`` with its rank, if the worker has several."""
        if len(self._ranks) > 1:
            failure.rank, failure.node = rank, 0
            failure.message = f"rank {rank} (node 0): {failure.message}"
            failure.phase = self._phases.get(rank, "start")
        return failure

    def _enter(self, rank: int, phase: object) -> None:
        if not isinstance(phase, str) or not _PHASE.fullmatch(phase):
            raise WorkerFailure("protocol", self.phase, "expected the name of a phase, found something else")
        self.phase = self._phases[rank] = phase

    def _rank_ended(self, rank: int, status: object) -> WorkerFailure:
        """The failure of a rank that ended without an event; ``status`` as in subprocess."""
        if type(status) is not int or not -64 <= status <= 255:
            return WorkerFailure(
                "protocol", self.phase, "expected the status of an ended rank, found something else"
            )
        self.phase = self._phases.get(rank, "start")
        outside = self._container_exit()
        failure = self._failure(status, outside is not None and outside.oom_killed)
        failure.exit_code, failure.signal = (status, None) if status >= 0 else (None, -status)
        return failure

    def _ended(self, fault: WorkerFailure | None) -> WorkerFailure:
        """The failure of the ended process; a ``fault`` that the worker reported keeps its message."""
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return fault or WorkerFailure(
                "protocol", self.phase, "the worker closed its output and did not end"
            )
        outside = self._container_exit()
        if outside is not None and outside.exit_code is not None:
            status = -(outside.exit_code - 128) if outside.exit_code > 128 else outside.exit_code
        out_of_memory = outside is not None and outside.oom_killed
        killed = status < 0
        if fault is None or (out_of_memory and fault.code == "crashed"):
            fault = self._failure(status, out_of_memory)
        fault.exit_code = None if killed else status
        fault.signal = -status if killed else None
        return fault

    def _failure(self, status: int, out_of_memory: bool) -> WorkerFailure:
        """The failure of a worker that reported none."""
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        if out_of_memory:
            message = f"the kernel ended the worker in the phase {self.phase}: memory limit reached ({how})"
            return WorkerFailure("out_of_memory", self.phase, message)
        lines = self._last_lines()
        if self.phase == "start" and status in _CLIENT_FAILED:
            first = lines[0] if lines else "no message"
            return WorkerFailure("environment", self.phase, f"the engine did not start the worker: {first}")
        if self.phase == "start" and lines and lines[-1].startswith(("ModuleNotFoundError", "ImportError")):
            return WorkerFailure("environment", self.phase, f"the interpreter lacks a module: {lines[-1]}")
        code = "killed" if status < 0 else "crashed"
        return WorkerFailure(code, self.phase, f"the worker ended in the phase {self.phase} with {how}")

    def _last_lines(self) -> list[str]:
        """The last lines on the worker's stderr, without paths: the log names no folders of a machine."""
        self._drain.join(timeout=2)
        lines = self._last_text.decode(errors="replace").strip().splitlines()
        return [" ".join("<path>" if "/" in part else part for part in line.split()) for line in lines]

    def _write(self, message: dict[str, Any]) -> None:
        stdin = self._pipe(self._process.stdin)
        try:
            stdin.write(json.dumps(message, allow_nan=False).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            while True:  # until the fault that the worker reported before, or its end
                self.receive(_EXIT_EVENT_S)

    def _drain_stderr(self) -> None:
        stderr = self._pipe(self._process.stderr).fileno()
        while text := os.read(stderr, _CHUNK):  # not by lines: an endless line would fill the memory
            self._last_text = text
            self._write_debug(text)

    def _write_debug(self, text: bytes) -> None:
        """Write ``text`` up to the limit. The caller always reads on: a full pipe would stop the worker."""
        room = min(self._debug_left, len(text))
        self._debug_left -= room
        if room > 0:
            with contextlib.suppress(OSError, ValueError):  # the disk is full, or the file closed
                self._debug.write(text[:room])

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            raise RuntimeError("the worker was started without pipes")
        return pipe
