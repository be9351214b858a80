"""The parent's side of the sandbox: starts the child at the first task, and again after it was killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from suite.sandbox.limits import CPU_SECONDS, WALL_SECONDS

_ROOT = Path(__file__).resolve().parents[2]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from suite.sandbox.child import main; sys.exit(main())"
_MAX_ANSWER = 16 << 20  # bytes; a usual answer has a thousandth of it
_CHUNK = 1 << 16


class SandboxError(Exception):
    """A fault of the suite, not of its input; the message names the error and its position."""


class TaskError(SandboxError):
    """A fault of one task; other tasks can still run."""


class LimitsError(Exception):
    """The child was killed, or ran out of memory or time; the message states which."""


class Sandbox:
    """One child process that runs the tasks that ``modules`` declare (``suite.checker.tasks``).

    Use it as a context manager; its exit ends the child.
    """

    def __init__(self, *modules: str, wall_seconds: float = WALL_SECONDS) -> None:
        self.modules = modules
        self.wall_seconds = wall_seconds
        self.starts = 0
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, task: str, **arguments: str | Path) -> Any:
        """The value that ``task`` returns for ``arguments``; the task receives paths as absolute text.

        Raises LimitsError if a limit ended the task, TaskError if it failed, SandboxError if no task can run.
        """
        child = self._running()
        sent = {
            name: str(value.absolute()) if isinstance(value, Path) else value
            for name, value in arguments.items()
        }
        try:
            line = self._line(child, json.dumps({"task": task, "arguments": sent}).encode("ascii") + b"\n")
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise LimitsError(self._end_of(child))
        answer = json.loads(line)
        if "limits" in answer:
            self.close()
            raise LimitsError(answer["limits"])
        if "fatal" in answer:
            raise SandboxError(answer["fatal"])
        if "error" in answer:
            raise TaskError(f"internal error of the suite: {answer['error']} ({' > '.join(answer['at'])})")
        return answer["value"]

    def close(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]
            child.kill()
            child.wait()
            child.stdout.close()  # type: ignore[union-attr]

    @property
    def pid(self) -> int | None:
        """The running child's process id; None without one."""
        return None if self._child is None else self._child.pid

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self.starts += 1
            # Compilation takes a third of a short check: the child writes byte code if the caller does.
            no_bytecode = ["-B"] if sys.dont_write_bytecode else []
            self._child = subprocess.Popen(
                [sys.executable, "-I", *no_bytecode, "-c", _START, str(_ROOT), *self.modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env={"LANG": "C.UTF-8", "PATH": os.defpath},  # without the caller's variables, such as tokens
            )
        return self._child

    def _line(self, child: subprocess.Popen[bytes], request: bytes) -> bytes:
        """The answer's line; incomplete if the child ended. Raises LimitsError when the time is over."""
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(request)
        child.stdin.flush()
        until = time.monotonic() + self.wall_seconds
        answer = bytearray()
        while not answer.endswith(b"\n") and len(answer) <= _MAX_ANSWER:
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                child.kill()
                self.close()
                raise LimitsError(f"no answer within {self.wall_seconds:g} s")
            piece = os.read(child.stdout.fileno(), _CHUNK)
            if not piece:
                break
            answer += piece
        if len(answer) > _MAX_ANSWER:
            child.kill()
            self.close()
            raise LimitsError(f"an answer of over {_MAX_ANSWER >> 20} MiB")
        return bytes(answer)

    def _end_of(self, child: subprocess.Popen[bytes]) -> str:
        """Why the child ended."""
        try:
            code = child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        if code == -signal.SIGXCPU:
            return f"over {CPU_SECONDS} s of processor time"
        if code < 0:
            return f"the child process was ended by {signal.Signals(-code).name}"
        raise TaskError(f"internal error of the suite: the child ended with code {code} without an answer")
