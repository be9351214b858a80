"""Progress on stderr: one line a repeat, with the time left. Nothing is drawn while a window is open."""

from __future__ import annotations

import contextlib
import sys
from time import monotonic


class Progress:
    """Plain lines: they survive logs, pipes and CI; a terminal sees the same."""

    def __init__(self, repeats: int, *, quiet: bool = False, name: str = "") -> None:
        self._repeats = repeats
        self._before = f"{name}: " if name else ""
        self._quiet = quiet
        self._started = monotonic()

    def say(self, text: str) -> None:
        """One line."""
        if not self._quiet:
            with contextlib.suppress(OSError):  # whoever read it has gone: no reason to lose the run
                print(self._before + text, file=sys.stderr, flush=True)

    def finished(self, repeat: int, text: str) -> None:
        """Repeat ``repeat`` is done; the others are expected to take as long as those so far."""
        done = repeat + 1
        left = (monotonic() - self._started) / done * (self._repeats - done)
        rest = f", about {_span(left)} left" if done < self._repeats else ""
        self.say(f"repeat {done}/{self._repeats}: {text}{rest}")

    def evaluated(self, metric: str, value: float, target: str, seconds: float) -> None:
        """One evaluation of a quality run."""
        self.say(f"  {_span(seconds)}: {metric} {value:.4g} (target {target})")


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
