"""Arrivals at the exchange on the host's clock, and on a clock that must be translated."""

from __future__ import annotations

from time import monotonic_ns, sleep

from suite.frameworks.arrivals import RING, HostArrivals, OtherClock, wall_clock


def test_host_arrivals_are_those_since_prepare() -> None:
    arrivals = HostArrivals()
    for _ in range(RING + 5):  # a soak has more steps than the ring has room for
        arrivals.record()
    assert arrivals.read(RING) is None
    arrivals.prepare()
    before = monotonic_ns()
    arrivals.record()
    middle = monotonic_ns()
    arrivals.record()
    first, second = arrivals.read(2) or (0, 0)
    assert before <= first <= middle <= second <= monotonic_ns()
    assert arrivals.read(3) is None


class Fast:
    """A clock with an offset that runs 0.05 % fast, as one that is slewed; ``jump`` is added at once."""

    def __init__(self) -> None:
        self.start, self.jump = monotonic_ns(), 0

    def read(self) -> int:
        return 7 * 10**17 + self.jump + (monotonic_ns() - self.start) * 10_005 // 10_000


def test_other_clock_is_translated_within_its_bound() -> None:
    fast = Fast()
    clock = OtherClock(fast.read)
    clock.start()
    moments = []
    for _ in range(5):
        sleep(0.02)
        before = monotonic_ns()
        moments.append((before, fast.read(), monotonic_ns()))
    translated = clock.translate([time for _, time, _ in moments]) or []
    assert len(translated) == 5
    for (before, _, after), moment in zip(moments, translated, strict=True):
        assert before - clock.bound_ns - 1 <= moment <= after + clock.bound_ns + 1
    assert 0 <= clock.bound_ns < 1_000_000


def test_clock_that_was_set_translates_nothing() -> None:
    fast = Fast()
    clock = OtherClock(fast.read)
    clock.start()
    fast.jump = 5_000_000
    assert clock.translate([fast.read()]) is None


def test_wall_clock_is_translated() -> None:
    clock = wall_clock()
    clock.start()
    assert clock.translate([]) == []
