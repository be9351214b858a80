"""Arrivals: when a rank has computed the last gradient of a step and begins to wait for the other ranks.

Computation does not wait for communication before that point, so ranks that are unequally fast reach it at
different times; after the exchange they continue together. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns, time_ns
from typing import Any

RING = 128  # arrivals that are kept; a span has at most 100 steps, the soak and the tail have more
_READINGS = 20
# Two clocks may differ in their rates by this much, and in one reading by this many ns; else one was set.
_RATE, _SLACK_NS = 1e-3, 100_000


class HostArrivals:
    """Arrivals by the host's monotonic clock. Recording one allocates nothing but its number."""

    def __init__(self) -> None:
        self._times = [0] * RING
        self._count = 0

    def prepare(self) -> None:
        """Forget earlier arrivals; no step is running."""
        self._count = 0

    def record(self) -> None:
        """Record an arrival now."""
        self._times[self._count % RING] = monotonic_ns()
        self._count += 1

    def read(self, count: int) -> list[int] | None:
        """The ``count`` arrivals since :meth:`prepare`, CLOCK_MONOTONIC in ns; None unless so many came."""
        return self._times[:count] if self._count == count else None

    def clock(self) -> dict[str, Any]:
        """Name and resolution of the clock, and the bound of its error on CLOCK_MONOTONIC, in ns."""
        return {"name": "monotonic", "resolution_ns": 1, "bound_ns": 0}


class OtherClock:
    """Translates times of another clock into CLOCK_MONOTONIC, by readings of both before and after them.

    ``read`` returns the time of the other clock in ns. Of several readings the one counts that took least
    time; half of that time bounds its error.
    """

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._first = (0, 0)
        self.bound_ns = 0

    def start(self) -> None:
        """Read both clocks before the times that are translated."""
        self.bound_ns = 0
        self._first = self._reading()

    def translate(self, times: Sequence[int]) -> list[int] | None:
        """``times`` in CLOCK_MONOTONIC; None if one of the clocks was set since :meth:`start`."""
        (other, monotonic), (other_end, monotonic_end) = self._first, self._reading()
        passed, other_passed = monotonic_end - monotonic, other_end - other
        if abs(other_passed - passed) > _RATE * passed + _SLACK_NS:
            return None
        return [monotonic + (time - other) * passed // max(other_passed, 1) for time in times]

    def _reading(self) -> tuple[int, int]:
        """The other clock and CLOCK_MONOTONIC at one moment."""
        readings = []
        for _ in range(_READINGS):
            before = monotonic_ns()
            other = self._read()
            after = monotonic_ns()
            readings.append((after - before, other, (before + after) // 2))
        length, other, monotonic = min(readings)
        self.bound_ns = max(self.bound_ns, length // 2)
        return other, monotonic


def wall_clock() -> OtherClock:
    """The host's clock of date and time, which may be set or slewed during a run."""
    return OtherClock(time_ns)
