"""CLAIM: the checker computes the claimed numbers again and compares them exactly."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import Context, Fault, rule
from suite.log.claims import claims_of


def _compare(c: Context, *names: str) -> Iterator[Fault]:
    footer = c.record.footer
    if footer is None or footer["claims"] is None or not c.repeats:
        return
    times = [
        next((event["elapsed_ns"] for event in repeat.evaluations if event["reached"]), None)
        for repeat in c.repeats
    ]
    windows = [repeat.window_ns or 0 for repeat in c.repeats]
    if c.mode == "throughput" and c.record.throughput is None:
        return  # a window or its units are not positive: TIME-003 and UNIT-002 report it
    wanted, _ = claims_of(c.mode, windows, [repeat.units for repeat in c.repeats], times)
    for name in names:
        if footer["claims"][name] != wanted[name]:
            yield Fault(footer.location(f"claims.{name}"), wanted[name], footer["claims"][name])


@rule("CLAIM-001")
def sums(c: Context) -> Iterator[Fault]:
    """The claimed window and units are the sums over the repeats."""
    yield from _compare(c, "window_ns", "units")


@rule("CLAIM-002")
def claimed_throughput(c: Context) -> Iterator[Fault]:
    """The claimed throughput is the sum of units over the sum of windows."""
    yield from _compare(c, "throughput")


@rule("CLAIM-003")
def spread(c: Context) -> Iterator[Fault]:
    """The claimed CV is that of the repeats' means."""
    yield from _compare(c, "cv")


@rule("CLAIM-004")
def time_to_quality(c: Context) -> Iterator[Fault]:
    """The claimed time to quality is the mean of the evaluations that reached the target."""
    yield from _compare(c, "time_to_quality_ns")
