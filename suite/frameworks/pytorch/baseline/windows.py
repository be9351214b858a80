"""Timed windows of fixed work, interleaved over all measurements, as JSON lines on stdout.

A **series** is one quantity, such as ``cpu.triad``: a number of units of work per call (bytes, FLOP, images),
and windows of (calls, elapsed time). Readers divide one by the other; this program computes no rates. Lines:

* ``{"kind": "facts", "facts": {...}}``: once, of the framework and its devices.
* ``{"kind": "series", "name", "unit", "work", "method"}``: before the first window of a series.
* ``{"kind": "window", "name", "window", "calls", "elapsed_ns"}``
* ``{"kind": "check", "name", "error", "limit"}``: the result was right; decimal strings.
* ``{"kind": "missing", "name", "reason"}``: a series that could not be measured here.
* ``{"kind": "wrong", "name", "expected", "found"}``: a result was wrong; the program then ends with 3.

Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

WINDOWS = 5
WRONG = 3  # the exit code for a wrong result
_PILOT_SHARE = 0.2  # of a window: so long is the pilot that decides the calls of a window

# (error, limit) of a result; it is wrong if the error is not below the limit.
Check = Callable[[], "tuple[float, float]"]
# The calls and the elapsed ns of one window, by series.
Window = Callable[[], "Mapping[str, tuple[int, int]]"]


class Missing(Exception):
    """What cannot be measured on this machine; the message is the reason."""


class WrongResult(Exception):
    """A measured operation computed a wrong result."""

    def __init__(self, name: str, expected: str, found: str) -> None:
        self.name, self.expected, self.found = name, expected, found
        super().__init__(f"{name}: expected {expected}, found {found}")


@dataclass(frozen=True)
class Series:
    """A quantity: ``work`` units per call. ``method`` states what was done; only equal methods compare."""

    name: str
    unit: str  # FLOP | byte | image | launch
    work: int
    method: str


@dataclass(frozen=True)
class Measurement:
    """One or several series that a window measures together, and the check of its result."""

    series: tuple[Series, ...]
    window: Window
    check: Check


def emit(kind: str, **fields: Any) -> None:
    """Print one line."""
    print(json.dumps({"kind": kind, **fields}), flush=True)


def timed(run: Callable[[int], None], calls: int) -> int:
    """The ns that ``run(calls)`` takes; it returns when the work is complete."""
    began = monotonic_ns()
    run(calls)
    return monotonic_ns() - began


def calls_for(run: Callable[[int], None], seconds: float) -> int:
    """The number of calls that take about ``seconds``, from an untimed call and a pilot of growing length.

    The fastest part of the pilot decides: other processes can only make one slower.
    """
    run(1)
    calls, fastest = 1, float(timed(run, 1))
    while calls * fastest < _PILOT_SHARE * seconds * 1e9:
        calls *= 2
        fastest = min(fastest, timed(run, calls) / calls)
    return max(1, round(seconds * 1e9 / fastest))


def repeated(series: Series, run: Callable[[int], None], check: Check, seconds: float) -> Measurement:
    """The measurement of ``run``, whose windows have equal numbers of calls and last about ``seconds``."""
    calls = calls_for(run, seconds)
    return Measurement((series,), lambda: {series.name: (calls, timed(run, calls))}, check)


def measure(candidates: Sequence[tuple[str, Callable[[], Measurement]]]) -> None:
    """Prepare all, check all, measure :data:`WINDOWS` windows of each, interleaved, and check all again.

    Each candidate is a name and a function that prepares it or raises :class:`Missing`. The order of every
    other round is reversed, so that a machine that drifts or heats up favours no series.
    """
    found: list[Measurement] = []
    for name, prepare in candidates:
        try:
            found.append(prepare())
        except Missing as reason:
            emit("missing", name=name, reason=str(reason))
    for one in found:
        for series in one.series:
            emit("series", name=series.name, unit=series.unit, work=series.work, method=series.method)
    _check(found)
    for window in range(WINDOWS):
        for one in found if window % 2 == 0 else found[::-1]:
            for name, (calls, elapsed) in one.window().items():
                emit("window", name=name, window=window, calls=calls, elapsed_ns=elapsed)
    for one, (error, limit) in zip(found, _check(found), strict=True):
        for series in one.series:
            emit("check", name=series.name, error=f"{error:.3g}", limit=f"{limit:.3g}")


def _check(found: Sequence[Measurement]) -> list[tuple[float, float]]:
    results = [one.check() for one in found]
    for one, (error, limit) in zip(found, results, strict=True):
        if not error <= limit:  # NaN is wrong too
            raise WrongResult(one.series[0].name, f"an error of at most {limit:.3g}", f"{error:.3g}")
    return results


def main(program: Callable[[], None]) -> int:
    """Run ``program``; the exit code: 0, or :data:`WRONG` after a wrong result."""
    try:
        program()
    except WrongResult as wrong:
        emit("wrong", name=wrong.name, expected=wrong.expected, found=wrong.found)
        print(wrong, file=sys.stderr)
        return WRONG
    return 0
