"""The worker's processes on this machine: their pipes, their debug text, and how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from suite.containers.engines.attestation import ContainerExit
from suite.containers.engines.native import WorkerCommand

_DEBUG_LIMIT = 4 << 20
_LINE_LIMIT = 8 << 20
_CHUNK = 1 << 16


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
        self.node: int | None = None  # if it is known


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended: the status of its container or process, as in subprocess, or None and ``problem``.

    ``lines`` are its last lines on stderr; ``code`` is the failure's that ``problem`` describes.
    """

    status: int | None
    out_of_memory: bool = False
    lines: Sequence[str] = ()
    problem: str = ""
    code: str = "protocol"


@contextlib.contextmanager
def _affinity(processors: frozenset[int] | None) -> Iterator[None]:
    """Within this block, processes that this thread starts run on ``processors`` (None: on its own).

    Raises OSError if this machine does not give exactly these; the worker logs what it finds again.
    """
    if processors is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        if (found := os.sched_getaffinity(0)) != processors:
            wanted = ", ".join(map(str, sorted(processors)))
            raise OSError(None, f"expected the processors {wanted}, found {sorted(found)}")
        yield
    finally:
        os.sched_setaffinity(0, before)


class LocalProcess:
    """A started worker of this machine.

    ``ended`` returns how its container ended (None: native); ``remove`` removes the container. One that is
    started ``early`` imports its framework after its configuration, and waits for the command ``begin``.
    """

    def __init__(
        self,
        command: WorkerCommand,
        debug_file: Path,
        ended: Callable[[], ContainerExit | None],
        remove: Callable[[], None],
        *,
        early: bool = False,
    ) -> None:
        self._early = early
        self._container_exit = ended
        self._remove = remove
        self._token = secrets.token_hex(8)
        self._prefix = self._token.encode() + b" "
        self._rest = b""
        self._problem = ""
        self._last_text = b""
        self._debug_left = _DEBUG_LIMIT
        self._debug = debug_file.open("ab", buffering=0)
        try:
            with _affinity(command.processors):
                self.process = subprocess.Popen(
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
            raise WorkerFailure("environment", "start", message) from error
        self._drain = threading.Thread(target=self._drain_stderr, name="debug text", daemon=True)
        self._drain.start()

    def fileno(self) -> int:
        """The descriptor to wait at for output."""
        return self._pipe(self.process.stdout).fileno()

    def pending(self) -> bool:
        """Whether :meth:`read` has something that :meth:`fileno` does not show: never."""
        return False

    def configure(self, job: dict[str, Any], ranks: Sequence[int]) -> None:
        """Send the job; ``ranks`` are those of this node, empty if the job has one rank."""
        several = {"ranks": list(ranks)} if ranks else {}
        self.write({"token": self._token, "job": job, "early": self._early, **several})

    def write(self, message: dict[str, Any]) -> None:
        """Send one line. Raises BrokenPipeError if the worker has closed its input."""
        stdin = self._pipe(self.process.stdin)
        stdin.write(json.dumps(message, allow_nan=False).encode() + b"\n")
        stdin.flush()

    def read(self) -> list[bytes] | None:
        """The events that have arrived, without the token; None at the end of the output.

        Other lines are debug text.
        """
        chunk = os.read(self.fileno(), _CHUNK)  # unbuffered: a selector does not see buffered data
        if not chunk or self._problem:
            return None
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LINE_LIMIT:
            self._problem = f"a line is longer than {_LINE_LIMIT} bytes"
            return None
        for line in lines:
            if not line.startswith(self._prefix):
                self._write_debug(line + b"\n")
        return [line[len(self._prefix) :] for line in lines if line.startswith(self._prefix)]

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process of the worker for lack of memory."""
        outside = self._container_exit()
        return outside is not None and outside.oom_killed

    def ended(self) -> Ended:
        """How the worker ended, after the end of its output; waits up to 10 s for its end."""
        if self._problem:
            return Ended(None, problem=self._problem)
        try:
            status: int | None = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return Ended(None, problem="the worker closed its output and did not end")
        outside = self._container_exit()
        # A worker whose engine's client was killed ends with a code of its own, at the end of its input.
        client_killed = status is not None and status < 0
        if outside is not None and outside.exit_code is not None and not client_killed:
            status = -(outside.exit_code - 128) if outside.exit_code > 128 else outside.exit_code
        return Ended(status, outside is not None and outside.oom_killed, self._last_lines())

    def end(self) -> None:
        """End the process group: close its stdin, then kill what still runs after 2 s."""
        try:
            with contextlib.suppress(OSError):
                self._pipe(self.process.stdin).close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=2)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            try:
                self._remove()
            finally:
                self._pipe(self.process.stdout).close()
                self._drain.join(timeout=2)
                self._debug.close()

    def _last_lines(self) -> list[str]:
        """The last lines on the worker's stderr, without paths: the log names no folders of a machine."""
        self._drain.join(timeout=2)
        lines = self._last_text.decode(errors="replace").strip().splitlines()
        return [" ".join("<path>" if "/" in part else part for part in line.split()) for line in lines]

    def _drain_stderr(self) -> None:
        # Closed by its reader: after a close in another thread the number may belong to another file.
        with self._pipe(self.process.stderr) as stderr:
            while text := os.read(stderr.fileno(), _CHUNK):  # not by lines: one could fill the memory
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
