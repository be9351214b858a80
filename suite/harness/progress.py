"""Progress on stderr: one line per repeat, with the remaining time. Nothing is printed within a window."""

from __future__ import annotations

import contextlib
import sys
from time import monotonic

from suite.log.units import span


class Progress:
    """Plain lines, equal in a terminal, a pipe and CI."""

    def __init__(self, repeats: int, *, quiet: bool = False, name: str = "") -> None:
        self._repeats = repeats
        self._prefix = f"{name}: " if name else ""
        self._quiet = quiet
        self._started = monotonic()

    def write(self, text: str) -> None:
        """Print one line, unless quiet."""
        if not self._quiet:
            with contextlib.suppress(OSError):  # a closed pipe must not end the run
                print(self._prefix + text, file=sys.stderr, flush=True)

    def finished(self, repeat: int, text: str) -> None:
        """Report that ``repeat`` is finished, and estimate the remaining time from the mean so far."""
        done = repeat + 1
        left = (monotonic() - self._started) / done * (self._repeats - done)
        rest = f", about {span(left)} left" if done < self._repeats else ""
        self.write(f"repeat {done}/{self._repeats}: {text}{rest}")

    def evaluated(self, metric: str, value: float, target: str, seconds: float) -> None:
        """Report one evaluation of a quality run."""
        self.write(f"  {span(seconds)}: {metric} {value:.4g} (target {target})")
