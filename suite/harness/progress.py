"""Progress on stderr: a line per repeat, and on a terminal what runs now; nothing within a window."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from datetime import datetime, timedelta
from time import monotonic

from suite.contract import MEASURED_STEPS, WARMUP_STEPS
from suite.log.units import significant, span

_LONG_S = 60.0  # a phase of this length gets a line of its own, also where there is no terminal
_NAMES = {  # of phases whose name in the worker protocol is not the field's term
    "setup": "set-up",
    "warmup": "warm-up",
    "tail": "telemetry tail",
    "sweep": "sweep of the exchange",
    "train": "training; a line follows for each evaluation",
}
_TIMED = ("window", "train")  # phases in which the harness must not use the machine


class Progress:
    """Plain lines, equal in a terminal, a pipe and CI; on a terminal a last line that changes each second.

    ``steps`` are those of a window, ``unit`` is the unit of work of the run, such as image.
    """

    def __init__(
        self,
        repeats: int,
        steps: int = MEASURED_STEPS,
        *,
        quiet: bool = False,
        name: str = "",
        unit: str = "",
    ) -> None:
        self._repeats, self._steps = repeats, steps
        self._prefix = f"{name}: " if name else ""
        self._unit = unit
        self._quiet = quiet
        self._started = monotonic()
        self._phase, self._since = "", monotonic()
        self._window_s: float | None = None  # the length of the last window
        terminal = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._live = _LastLine() if terminal else None

    def write(self, text: str) -> None:
        """Print one line, unless quiet."""
        if not self._quiet:
            if self._live is not None:
                self._live.clear()
            with contextlib.suppress(OSError):  # a closed pipe must not end the run
                print(self._prefix + text, file=sys.stderr, flush=True)

    def phase(self, repeat: int, name: str, warmup_units: int = 0) -> None:
        """Report that a phase of ``repeat`` begins; at the window, with the units of work of the warm-up."""
        now = monotonic()
        where, last, took = self._where(repeat), self._phase, now - self._since
        self._phase, self._since = name, now
        shown = _NAMES.get(name, name.replace("_", " "))
        if name == "window":
            self._show_window(where, warmup_units, took)
            return
        if last and took >= _LONG_S:
            self.write(f"{where}{_NAMES.get(last, last)} took {span(took)}; next: {shown}")
        if self._live is not None:
            self._live.show(f"{self._prefix}{where}{shown}", counts=name not in _TIMED)

    def _show_window(self, where: str, warmup_units: int, warmup_s: float) -> None:
        """Announce the window, which begins after this call, with its expected length."""
        length = self._window_s or warmup_s * self._steps / WARMUP_STEPS
        rate = f"{significant(warmup_units / warmup_s)} {self._unit}s/s" if warmup_s > 0 else ""
        if length >= _LONG_S:
            end = datetime.now().astimezone() + timedelta(seconds=length)
            self.write(
                f"{where}warm-up took {span(warmup_s)}, about {rate}; the window takes about {span(length)}, "
                f"until about {end:%H:%M}, and prints nothing"
            )
        elif self._live is not None:
            self._live.show(
                f"{self._prefix}{where}window of {self._steps:,} steps, about {rate} in the warm-up",
                counts=False,
            )

    def ended(self) -> None:
        """Report that the current phase ended; another run may come before the next one of this run."""
        self._phase = ""

    def finished(self, repeat: int, text: str, window_s: float | None = None) -> None:
        """Report that ``repeat`` is finished, and estimate the remaining time from the mean so far."""
        done = repeat + 1
        self._window_s, self._phase = window_s, ""
        left = (monotonic() - self._started) / done * (self._repeats - done)
        rest = f", about {span(left)} left" if done < self._repeats else ""
        self.write(f"{self._where(repeat)}{text}{rest}")

    def _where(self, repeat: int) -> str:
        """The number of ``repeat`` as in the log, which counts from 0, and how many there are."""
        return f"repeat {repeat} ({repeat + 1} of {self._repeats}): "

    def evaluated(self, metric: str, value: float, target: str, seconds: float) -> None:
        """Report one evaluation of a quality run."""
        self.write(f"  {span(seconds)}: {metric} {value:.4g} (target {target})")

    def close(self) -> None:
        """Remove the line that changes."""
        if self._live is not None:
            self._live.clear()


class _LastLine:
    """The last line of the terminal: a text, and the seconds since it was shown.

    A thread counts the seconds. While the text does not count, the thread sleeps without a time-out, so that
    it uses no processor within a measurement window.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._text, self._since, self._counts = "", 0.0, False
        self._thread: threading.Thread | None = None

    def show(self, text: str, *, counts: bool) -> None:
        """Show ``text``, followed by the seconds since now if it ``counts``."""
        with self._changed:
            self._text, self._since, self._counts = text, monotonic(), counts
            self._draw()
            self._changed.notify()
        if counts and self._thread is None:
            self._thread = threading.Thread(target=self._count, name="progress", daemon=True)
            self._thread.start()

    def clear(self) -> None:
        """Remove the line."""
        with self._changed:
            self._counts = False
            if self._text:
                self._text = ""
                _print("")
            self._changed.notify()

    def _count(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._counts)
                notified = self._changed.wait(1.0)  # then show() has drawn the line
                if self._counts and not notified:
                    self._draw()

    def _draw(self) -> None:
        seconds = int(monotonic() - self._since)
        _print(self._text + (f", {span(seconds)}" if self._counts and seconds else ""))


def _print(text: str) -> None:
    """Replace the last line of the terminal, shortened to its width."""
    with contextlib.suppress(OSError, ValueError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        sys.stderr.write(f"\r\x1b[2K{text[: max(0, width - 1)]}")
        sys.stderr.flush()
