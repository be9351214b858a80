"""The timing loop: the only one, framework-neutral.

The official time of a repeat is the window: CLOCK_MONOTONIC from the drained device before step 10 to the
drained device with all losses or outputs on the host, after the last step: 109, unless the run states a
longer window. In between, the worker does not synchronise per step on an accelerator, write to files or
pipes, log, or collect garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

COLLECTED = 100  # steps after which a longer span copies its results to the host
TOGETHER_NS = 50_000  # at most, between the start of a span and its timestamp 0 on the host's clock
STARTS = 20  # attempts to read both within that time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from suite.contract import Arrivals


class Clocked(Protocol):
    """The part of a framework that the loop needs; see :class:`suite.contract.Framework`."""

    timestamp_kind: str

    @property
    def arrivals(self) -> Arrivals | None:
        """Arrivals at the exchange, or None."""

    def synchronize(self) -> None:
        """Drain the device."""

    def prepare_timestamps(self, count: int) -> None:
        """Make room for ``count`` timestamps."""

    def record_timestamp(self, index: int) -> None:
        """Record timestamp ``index``."""

    def read_timestamps(self, count: int) -> list[int]:
        """Nanoseconds from timestamp 0."""


class Stepped(Protocol):
    """The part of a pair that the loop needs; see :class:`suite.contract.Pair`."""

    def step(self, index: int) -> None:
        """Enqueue step ``index``."""

    def collect(self) -> list[NDArray[Any]]:
        """Results since the last call, on the host."""


class Meeting(Protocol):
    """The part of :class:`suite.worker.group.SpanBarrier` that the loop needs: ranks wait for each other."""

    def enter(self) -> None:
        """Called after the device is drained, before the clock is read."""

    def leave(self) -> None:
        """Called after the clock is read at the end."""


@dataclass(frozen=True, slots=True)
class Span:
    """The times and results of one span of steps: CLOCK_MONOTONIC in ns, timestamps from the span's start."""

    open_ns: int
    close_ns: int
    collect_ns: int  # copy of losses or outputs to the host at the end, inside the span
    timestamps: list[int]  # end of each step, increasing
    dispatched: list[int]  # host clock after the return of each step call, same origin
    results: list[NDArray[Any]]  # one array a step: loss or outputs
    arrivals: list[int] | None = None  # at the exchange of each step, same origin; None: none, or unknown

    @property
    def ns(self) -> int:
        """Length of the span."""
        return self.close_ns - self.open_ns


def run_span(
    pair: Stepped, framework: Clocked, first: int, count: int, meeting: Meeting | None = None
) -> Span:
    """Run ``count`` steps from ``first`` between two drains; timestamps are asynchronous where possible.

    With a ``meeting`` all ranks begin and end together; no rank waits within the span. In a span of more than
    ``COLLECTED`` steps the results come to the host and garbage is collected after every so many, so that
    memory does not grow with the length of the span.
    """
    framework.prepare_timestamps(count + 1)
    if framework.arrivals is not None:
        framework.arrivals.prepare()
    dispatched = [0] * count
    results: list[NDArray[Any]] = []
    moments: list[int] | None = []  # of arrivals
    last = 0  # steps whose results are on the host
    step, timestamp = pair.step, framework.record_timestamp
    framework.synchronize()
    if meeting is not None:
        meeting.enter()
    for _ in range(STARTS):
        opened = monotonic_ns()
        timestamp(0)
        # If another process took the CPU in between, timestamps of the host would count from a later moment
        # than the times of dispatch and of arrivals: a step would seem to end before its exchange.
        if framework.timestamp_kind == "device" or monotonic_ns() - opened < TOGETHER_NS:
            break
    for i in range(count):
        step(first + i)
        # Not after the timestamp: if another thread ran in between, the device may have ended the step.
        dispatched[i] = monotonic_ns()
        timestamp(i + 1)
        if i + 1 - last == COLLECTED and i + 1 < count:
            framework.synchronize()
            results += pair.collect()
            moments = _arrivals(framework, COLLECTED, moments)
            if framework.arrivals is not None:
                framework.arrivals.prepare()
            gc.collect()  # of cycles, which a framework may make in each step: the collector is off
            last = i + 1
    framework.synchronize()
    drained = monotonic_ns()
    results += pair.collect()
    closed = monotonic_ns()
    if meeting is not None:
        meeting.leave()
    timestamps = framework.read_timestamps(count + 1)
    if framework.timestamp_kind == "host_completion":
        # A thread of the framework may have taken the last timestamp while this thread waited for a CPU.
        timestamps[-1] = drained - opened
    moments = _arrivals(framework, count - last, moments)
    return Span(
        opened,
        closed,
        closed - drained,
        timestamps,
        [moment - opened for moment in dispatched],
        results,
        None if moments is None else [moment - opened for moment in moments],
    )


def _arrivals(framework: Clocked, count: int, earlier: list[int] | None) -> list[int] | None:
    """``earlier`` and the last ``count`` arrivals; None if there are none, or one is unknown.

    Called after a drain: the framework has room for the arrivals of ``COLLECTED`` steps.
    """
    if framework.arrivals is None:
        return None
    found = framework.arrivals.read(count)
    return None if found is None or earlier is None else earlier + found


def run_single_stream(
    pair: Stepped, framework: Clocked, first: int, count: int, meeting: Meeting | None = None
) -> Span:
    """As :func:`run_span`, but each step waits until its output is on the host."""
    ends = [0] * count
    results: list[NDArray[Any]] = []
    framework.synchronize()
    if meeting is not None:
        meeting.enter()
    opened = monotonic_ns()
    for i in range(count):
        pair.step(first + i)
        results.extend(pair.collect())
        ends[i] = monotonic_ns()
    closed = monotonic_ns()
    if meeting is not None:
        meeting.leave()
    timestamps = [end - opened for end in ends]
    return Span(opened, closed, 0, timestamps, list(timestamps), results)


def soak(
    pair: Stepped,
    framework: Clocked,
    length_ns: int,
    steps: int,
    chunk: int = 10,
    decide: Callable[[bool], bool] = bool,
) -> tuple[int, tuple[int, int]]:
    """Run steps untimed for at least ``length_ns``; returns their number, the start and the end.

    Drains the device every ``chunk`` steps. ``decide`` turns the wishes of the ranks to continue into one
    decision: all take equal numbers of steps. They start together, so that no rank's time passes while it
    waits for another one, and continue until each has had ``length_ns``.
    """
    if length_ns <= 0:
        return 0, (monotonic_ns(), monotonic_ns())
    decide(True)
    start, done = monotonic_ns(), 0
    while decide(monotonic_ns() < start + length_ns):
        for _ in range(chunk):
            pair.step(done % steps)
            done += 1
        framework.synchronize()
        pair.collect()
    return done, (start, monotonic_ns())


def timed(action: Callable[[], Any]) -> tuple[Any, int]:
    """The result of ``action`` and its wall time in nanoseconds."""
    start = monotonic_ns()
    return action(), monotonic_ns() - start
