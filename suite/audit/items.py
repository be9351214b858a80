"""The items that a replay compares: outcome, expected, found, tolerance, or why it was not compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suite.log.safe import safe

EQUAL, INSIDE, DIFFERENT, NOT_COMPARABLE = "equal", "inside tolerance", "different", "not comparable"
EXACT = "none: must be equal"
_BY_SEVERITY = (DIFFERENT, NOT_COMPARABLE, INSIDE, EQUAL)


@dataclass(frozen=True, slots=True)
class ComparedItem:
    """One comparison. ``repeat`` is the submission's; ``because`` is the step, or why not compared."""

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
    """Compare two values that must be equal."""
    outcome = EQUAL if expected == found else DIFFERENT
    return ComparedItem(name, outcome, str(expected), str(found), repeat=repeat)


def incomparable(name: str, because: str, repeat: int | None = None) -> ComparedItem:
    """An item that could not be compared, with the reason ``because``."""
    return ComparedItem(name, NOT_COMPARABLE, "null", "null", "null", because, repeat)


def sequences(
    name: str, expected: Sequence[str], found: Sequence[str], repeat: int | None = None
) -> ComparedItem:
    """Compare two sequences of digests that must be equal; reports the first step that differs."""
    if len(expected) != len(found):
        return ComparedItem(name, DIFFERENT, f"{len(expected)} steps", f"{len(found)} steps", repeat=repeat)
    for step, (wanted, actual) in enumerate(zip(expected, found, strict=True)):
        if wanted != actual:
            return ComparedItem(
                name, DIFFERENT, wanted, actual, because=f"first at step {step}", repeat=repeat
            )
    summary = f"{len(expected)} of {len(expected)} steps"
    return ComparedItem(name, EQUAL, summary, summary, repeat=repeat)


def numbers(
    name: str,
    expected: Sequence[str],
    found: Sequence[str],
    tolerances: Sequence[float] | None,
    repeat: int | None = None,
    why_exact: str = "",
) -> ComparedItem:
    """Compare two curves of hexadecimal floats within relative ``tolerances``, one per step; None: exactly.

    The item reports the first step outside its tolerance, or the step that came nearest to it.
    """
    if len(expected) != len(found):
        return ComparedItem(name, DIFFERENT, f"{len(expected)} steps", f"{len(found)} steps", repeat=repeat)
    if list(expected) == list(found):
        summary = f"{len(expected)} of {len(expected)} steps, bit for bit"
        return ComparedItem(name, EQUAL, summary, summary, repeat=repeat)
    worst, at = -1.0, 0
    for step, (wanted, actual) in enumerate(zip(expected, found, strict=True)):
        if wanted == actual:
            continue
        slack = 0.0 if tolerances is None else tolerances[step]
        share = _difference(wanted, actual) / slack if slack else float("inf")
        if not share <= 1.0:  # also true for nan
            return _at(name, DIFFERENT, expected, found, step, slack, repeat, why_exact)
        if share > worst:
            worst, at = share, step
    return _at(name, INSIDE, expected, found, at, tolerances[at] if tolerances else 0.0, repeat, why_exact)


def _difference(wanted: str, actual: str) -> float:
    """The relative difference of two hexadecimal floats."""
    known = float.fromhex(wanted)
    difference = abs(float.fromhex(actual) - known)
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
    apart = _difference(expected[step], found[step])
    where = f"{'first' if outcome == DIFFERENT else 'nearest'} at step {step}, {apart:.1e} apart"
    if slack == math.inf:
        tolerance = f"none at step {step}: rounding errors dominate"
    else:
        tolerance = f"{slack:.1e} at step {step}" if slack else f"bit for bit: {why_exact}"
    wanted, actual = (f"{float.fromhex(texts[step]):.9g}" for texts in (expected, found))
    return ComparedItem(name, outcome, wanted, actual, tolerance, where, repeat)


def different(items: Iterable[ComparedItem]) -> list[ComparedItem]:
    """The items that differ."""
    return [item for item in items if item.outcome == DIFFERENT]


def lines(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Items as lines that are safe to print: four lines for an item that differs, one for others."""
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
    """The number of items with each outcome, as text."""
    counts = Counter(item["outcome"] for item in items)
    return ", ".join(f"{counts[name]} {name}" for name in _BY_SEVERITY if counts[name])
