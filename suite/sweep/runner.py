"""Run the cells of a matrix or a sweep: each is a new process ``suite run``, one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAST_LINES = 15
_GRACE_S = 60.0  # for a run that was asked to end after its time limit
_RESULT = "result: "


@dataclass(frozen=True, slots=True)
class RunExit:
    """The end of a run. ``reason`` is its error in one line, ``last_lines`` the end of its output."""

    exit_code: int
    seconds: float
    folder: Path | None
    reason: str
    last_lines: tuple[str, ...]
    timed_out: bool = False


class Runner:
    """Runs one cell at a time, and forwards the first interruption to it, so that it can end cleanly."""

    def __init__(self, lock: int) -> None:
        self.interrupted = False
        self._lock = lock
        self._child: subprocess.Popen[bytes] | None = None

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Within this block SIGINT, SIGTERM and SIGHUP end the current run and the matrix."""
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self.interrupted and self._child is not None:
            self._child.send_signal(signal.SIGINT)
        self.interrupted = True

    def run(self, options: Sequence[str], timeout_s: float | None = None) -> RunExit:
        """Run ``python -m suite run`` with these options. OSError if no process can be started.

        A run that takes longer than ``timeout_s`` is interrupted, and killed if it does not end.

        The child has a separate process group, so that only this process forwards a terminal's Ctrl-C. The
        child inherits the lock of the journal: no other matrix starts beside it if this process is killed.
        """
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "suite", "run", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=(self._lock,),
            )
            if self.interrupted:  # the signal arrived while the process started
                self._child.send_signal(signal.SIGINT)
            code, timed_out = _wait(self._child, timeout_s)
            self._child = None
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.strip()]
        folder = next((Path(line.removeprefix(_RESULT)) for line in lines if line.startswith(_RESULT)), None)
        seconds = time.monotonic() - began
        reason = f"it took longer than {timeout_s:g} s" if timed_out else _reason(code, lines)
        return RunExit(code, seconds, folder, reason, tuple(lines[-_LAST_LINES:]), timed_out)


def _wait(child: subprocess.Popen[bytes], timeout_s: float | None) -> tuple[int, bool]:
    """The exit status of ``child``, and whether its time limit ended it."""
    try:
        return child.wait(timeout_s), False
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
    try:
        return child.wait(_GRACE_S), True
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # its workers end with it
        return child.wait(), True


def _reason(code: int, lines: Sequence[str]) -> str:
    """The error that a run printed, in one line; empty for an accepted run."""
    if code == 0:
        return ""
    for start in ("error: ", "reject: "):
        for index, line in enumerate(lines):
            if line.startswith(start):
                more = [text.strip() for text in lines[index + 1 : index + 3] if text.startswith("  ")]
                return " ".join([line.removeprefix("error: "), *more])[:500]
    if code < 0:
        return f"ended by signal {-code}"
    return (lines[-1] if lines else "no output")[:500]
