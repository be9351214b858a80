"""What a replay compares, item by item: outcome, expected, found, tolerance, or why it was not compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suite.log.safe import safe

EQUAL, INSIDE, DIFFERENT, NOT_COMPARABLE = "equal", "inside tolerance", "different", "not comparable"
EXACT = "none: equal or not"
_GRAVEST = (DIFFERENT, NOT_COMPARABLE, INSIDE, EQUAL)


@dataclass(frozen=True, slots=True)
class ComparedItem:
    """One comparison. ``repeat`` counts as the submission does; ``because`` says where, or why not."""

    name: str
    outcome: str
    expected: str
    found: str
    tolerance: str = EXACT
    because: str = ""
    repeat: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The item as JSON values."""
        return asdict(self)


def exactly(name: str, expected: object, found: object, repeat: int | None = None) -> ComparedItem:
    """Two values that must be equal."""
    outcome = EQUAL if expected == found else DIFFERENT
    return ComparedItem(name, outcome, str(expected), str(found), repeat=repeat)


def incomparable(name: str, because: str, repeat: int | None = None) -> ComparedItem:
    """An item that there is nothing to compare for."""
    return ComparedItem(name, NOT_COMPARABLE, "null", "null", "null", because, repeat)


def sequences(
    name: str, expected: Sequence[str], found: Sequence[str], repeat: int | None = None
) -> ComparedItem:
    """Two sequences of digests that must be equal, told by the first step that is not."""
    if len(expected) != len(found):
        return ComparedItem(name, DIFFERENT, f"{len(expected)} steps", f"{len(found)} steps", repeat=repeat)
    for step, (wanted, told) in enumerate(zip(expected, found, strict=True)):
        if wanted != told:
            return ComparedItem(name, DIFFERENT, wanted, told, because=f"first at step {step}", repeat=repeat)
    told = f"{len(expected)} of {len(expected)} steps"
    return ComparedItem(name, EQUAL, told, told, repeat=repeat)


def numbers(
    name: str,
    expected: Sequence[str],
    found: Sequence[str],
    tolerances: Sequence[float] | None,
    repeat: int | None = None,
    why_exact: str = "",
) -> ComparedItem:
    """Two curves of hexadecimal floats; ``tolerances`` are relative, one a step, and None where bits count.

    Of a curve inside its tolerances the step is told that came nearest to its own, of another the first that
    left it.
    """
    if len(expected) != len(found):
        return ComparedItem(name, DIFFERENT, f"{len(expected)} steps", f"{len(found)} steps", repeat=repeat)
    if list(expected) == list(found):
        told = f"{len(expected)} of {len(expected)} steps, bit for bit"
        return ComparedItem(name, EQUAL, told, told, repeat=repeat)
    worst, at = -1.0, 0
    for step, (wanted, told) in enumerate(zip(expected, found, strict=True)):
        if wanted == told:
            continue
        slack = 0.0 if tolerances is None else tolerances[step]
        share = _off(wanted, told) / slack if slack else float("inf")
        if not share <= 1.0:  # a value that is no number is outside
            return _at(name, DIFFERENT, expected, found, step, slack, repeat, why_exact)
        if share > worst:
            worst, at = share, step
    return _at(name, INSIDE, expected, found, at, tolerances[at] if tolerances else 0.0, repeat, why_exact)


def _off(wanted: str, told: str) -> float:
    known = float.fromhex(wanted)
    difference = abs(float.fromhex(told) - known)
    return difference / abs(known) if known else float("inf")


def _at(
    name: str,
    outcome: str,
    expected: Sequence[str],
    found: Sequence[str],
    step: int,
    slack: float,
    repeat: int | None,
    why_exact: str,
) -> ComparedItem:
    off = _off(expected[step], found[step])
    where = f"{'first' if outcome == DIFFERENT else 'nearest'} at step {step}, {off:.1e} apart"
    if slack == math.inf:
        tolerance = f"none at step {step}: rounding errors dominate"
    else:
        tolerance = f"{slack:.1e} at step {step}" if slack else f"bit for bit: {why_exact}"
    wanted, told = (f"{float.fromhex(texts[step]):.9g}" for texts in (expected, found))
    return ComparedItem(name, outcome, wanted, told, tolerance, where, repeat)


def different(items: Iterable[ComparedItem]) -> list[ComparedItem]:
    """The items that differ."""
    return [item for item in items if item.outcome == DIFFERENT]


def lines(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Items as lines, all safe to print: one for what holds, four for what does not."""
    for item in (ComparedItem(**row) for row in items):
        named = item.name if item.repeat is None else f"{item.name}, repeat {item.repeat}"
        if item.outcome == NOT_COMPARABLE:
            yield f"{item.outcome}: {safe(named)}: {safe(item.because, 300)}"
        elif item.outcome == DIFFERENT:
            yield f"{item.outcome}: {safe(named)}" + (f", {safe(item.because, 300)}" if item.because else "")
            yield f"  expected  {safe(item.expected, 240)}"
            yield f"  found     {safe(item.found, 240)}"
            yield f"  tolerance {safe(item.tolerance, 240)}"
        else:
            room = "" if item.outcome == EQUAL else f" (tolerance {safe(item.tolerance)})"
            where = f"; {safe(item.because, 300)}" if item.because else ""
            yield f"{item.outcome}: {safe(named)}: {safe(item.found)}{room}{where}"


def counted(items: Iterable[Mapping[str, Any]]) -> str:
    """How many items had which outcome, in words."""
    told = [str(item["outcome"]) for item in items]
    return ", ".join(f"{told.count(name)} {name}" for name in _GRAVEST if name in told)
