"""Asking the child: it is started at the first question and again whenever it was killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from suite.judge.child import ALL, CHECK
from suite.judge.limits import CPU_SECONDS, WALL_SECONDS
from suite.record.finding import Finding
from suite.record.safe import safe

_ROOT = Path(__file__).resolve().parents[2]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from suite.judge.child import main; sys.exit(main())"
_MAX_ANSWER = 16 << 20  # bytes: fifty findings and a system description are a thousandth of it
_CHUNK = 1 << 16


class JudgeError(Exception):
    """A fault of the checker itself, or of its rule files; the message says what and where."""


class FaultError(JudgeError):
    """A fault of the checker over one question: that one has no answer, others may have."""


class LimitsError(Exception):
    """The child was killed, or ran out of memory or time; the message says which."""


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict that came out of the child: what :class:`suite.checker.Verdict` says, without the record."""

    name: str
    findings: tuple[Finding, ...]
    accepted: bool
    scored: bool
    reached: str
    value: dict[str, Any]

    @property
    def rules(self) -> str | None:
        """The version that judged; None of a log that names none."""
        version: str | None = self.value["rules"]
        return version

    @property
    def rejections(self) -> tuple[Finding, ...]:
        """The findings that reject."""
        return tuple(found for found in self.findings if found.severity == "reject")

    @property
    def flags(self) -> tuple[Finding, ...]:
        """The findings for an auditor to look at."""
        return tuple(found for found in self.findings if found.severity == "flag")

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return self.value


class Judge:
    """One child, and the questions to it. Use it as a context manager: leaving it ends the child."""

    def __init__(self, wall_seconds: float = WALL_SECONDS) -> None:
        self.wall_seconds = wall_seconds
        self.starts = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._able = CHECK

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self, path: Path) -> Told:
        """The verdict on the result in ``path``; a check that broke a limit is rejected by LOG-019."""
        try:
            value = self.ask({"ask": "check", "path": str(path.absolute())})
        except LimitsError as error:
            value = ended(path, beyond(str(error)))
        return _told(value)

    def comparable(self, path: Path) -> tuple[Told, dict[str, Any] | None]:
        """The verdict on the result in ``path``, and what a comparison needs of it; None without a score."""
        try:
            value = self.ask({"ask": "compare", "path": str(path.absolute())})
        except LimitsError as error:
            return _told(ended(path, beyond(str(error)))), None
        return _told(value["verdict"]), value["comparable"]

    def ask(self, question: dict[str, str]) -> Any:
        """The answer to one question; LimitsError, FaultError or JudgeError where there is none."""
        child = self._running(CHECK if question["ask"] == "check" else ALL)
        try:
            line = self._line(child, json.dumps(question).encode("ascii") + b"\n")
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise LimitsError(self._end_of(child))
        answer = json.loads(line)
        if "limits" in answer:
            self.close()
            raise LimitsError(answer["limits"])
        if "malformed" in answer:
            raise JudgeError(answer["malformed"])
        if "error" in answer:
            raise FaultError(f"internal error in the checker: {answer['error']} ({' > '.join(answer['at'])})")
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

    def _running(self, able: str) -> subprocess.Popen[bytes]:
        """A child that is able to answer; one that only checks starts in a third of the time."""
        if self._child is not None and (self._child.poll() is not None or self._able not in (able, ALL)):
            self.close()
        if self._child is None:
            self.starts += 1
            self._able = able
            # To compile the checker is a third of a short check: byte code is kept if the caller's own is.
            kept = ["-B"] if sys.dont_write_bytecode else []
            self._child = subprocess.Popen(
                [sys.executable, "-I", *kept, "-c", _START, str(_ROOT), able],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env={"LANG": "C.UTF-8", "PATH": os.defpath},  # nothing of the caller's, such as tokens
            )
        return self._child

    def _line(self, child: subprocess.Popen[bytes], question: bytes) -> bytes:
        """The answer's line, or what came of it before the child or its time ended."""
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(question)
        child.stdin.flush()
        until = time.monotonic() + self.wall_seconds
        found = bytearray()
        while not found.endswith(b"\n") and len(found) <= _MAX_ANSWER:
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                child.kill()
                self.close()
                raise LimitsError(f"no verdict within {self.wall_seconds:g} s")
            piece = os.read(child.stdout.fileno(), _CHUNK)
            if not piece:
                break
            found += piece
        return bytes(found)

    def _end_of(self, child: subprocess.Popen[bytes]) -> str:
        """Why the child ended, in words."""
        try:
            code = child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        if code == -signal.SIGXCPU:
            return f"over {CPU_SECONDS} s of processor time"
        if code < 0:
            return f"the check was ended by {signal.Signals(-code).name}"
        raise FaultError(f"internal error in the checker: it ended with code {code} and without an answer")


def _told(value: dict[str, Any]) -> Told:
    findings = tuple(Finding(**found) for found in value["findings"])
    return Told(value["result"], findings, value["accepted"], value["scored"], value["reached"], value)


def beyond(why: str) -> Finding:
    """What is found where a limit ended a check, for the reason ``why``."""
    from suite.rules import load
    from suite.rules.places import NEWEST

    check = load(NEWEST).checks["LOG-019"]
    return Finding(
        "LOG-019", check.severity, "the whole result", "a check within the limits", why, check.mend
    )


def ended(path: Path, found: Finding) -> dict[str, Any]:
    """The verdict on a result whose check was ended by a limit."""
    return {
        "result": safe(path.name),
        "run_id": None,
        "accepted": False,
        "scored": False,
        "reached": "the check was ended",
        "rules": None,
        "sha256": None,
        "rejections": 1,
        "flags": 0,
        "findings": [found.as_dict()],
    }
