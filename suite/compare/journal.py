"""The format of ``journal.jsonl``, the journal of matrices, sweeps and scaling sets in a folder of results.

Each line is one JSON object. A command of a sweep has a line when it begins, a cell when it has ended.
:mod:`suite.sweep.journal` writes the lines; they are read here, also those of others: a line that does not
follow the format is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

JOURNAL = "journal.jsonl"
OUTCOMES = ("ok", "oom", "timeout", "error", "skipped")
_LONGEST = 1 << 16  # characters of a line
_MOST = 200  # options of a cell
_TEXT = 4096  # characters of a text


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class SweepLine:
    """A command of a sweep began. ``sweep`` is the id of its cells, options and code."""

    sweep: str
    seed: int  # of the order
    cells: int
    wall: str = field(default_factory=_now)
    study: str = ""  # the name of a file in conf/sweep; empty for another sweep
    axes: tuple[str, ...] = ()  # options that differ between its cells; earlier versions wrote none


@dataclass(frozen=True, slots=True)
class JournalLine:
    """The end of one cell. ``outcome`` is ``ok``, ``oom``, ``timeout``, ``error`` or ``skipped``."""

    options: tuple[str, ...]
    code: str  # digest of the code of the checkout
    outcome: str
    exit_code: int | None  # None if the workload or the pair does not exist
    reason: str
    group: tuple[str, ...] = ()  # division, scale, data, mode
    key: dict[str, Any] = field(default_factory=dict)
    run_id: str = ""  # of the result; empty without one
    seconds: float | None = None  # of the run
    timeout_s: float | None = None  # the limit that it had
    sweep: str = ""  # the id of the sweep
    reference: int | None = None  # number of a measurement of the reference cell; None for any other run
    wall: str = field(default_factory=_now)


def values_of(options: Iterable[str]) -> dict[str, str]:
    """The values of options ``name=value``, by name."""
    return {name: value for name, _, value in (one.partition("=") for one in options)}


def differing(options: Sequence[Mapping[str, str]], planned: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the options that differ, and those ``planned`` to, in their order."""
    names = dict.fromkeys(name for one in options for name in one)
    return tuple(name for name in names if name in planned or len({one.get(name) for one in options}) > 1)


def lines_of(text: str) -> Iterator[JournalLine | SweepLine]:
    """The lines of a journal, oldest first; those that are incomplete or of another format are skipped."""
    for raw in text.split("\n"):
        if (line := _parsed(raw)) is not None:
            yield line


def _parsed(raw: str) -> JournalLine | SweepLine | None:
    if not raw or len(raw) > _LONGEST:
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    kind: Any = SweepLine if "seed" in value else JournalLine
    names = {one.name: one for one in fields(kind)}
    required = {
        name for name, one in names.items() if one.default is MISSING and one.default_factory is MISSING
    }
    if not required <= value.keys() <= names.keys():
        return None
    if not all(_VALID[name](found) for name, found in value.items()):
        return None
    made: JournalLine | SweepLine = kind(
        **{name: tuple(found) if isinstance(found, list) else found for name, found in value.items()}
    )
    return made


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _TEXT


def _whole(value: object) -> bool:
    return type(value) is int and abs(value) < 1 << 53


def _texts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST and all(map(_text, value))


def _seconds(value: object) -> bool:
    if value is None:
        return True
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def _key(value: object) -> bool:
    plain = (str, int, float, bool, type(None))
    return (
        isinstance(value, dict) and len(value) <= _MOST and all(isinstance(v, plain) for v in value.values())
    )


_VALID: Mapping[str, Callable[[object], bool]] = {
    "options": _texts,
    "axes": _texts,
    "group": _texts,
    "key": _key,
    "outcome": OUTCOMES.__contains__,
    "exit_code": lambda value: value is None or _whole(value),
    "reference": lambda value: value is None or _whole(value),
    "seed": _whole,
    "cells": _whole,
    "seconds": _seconds,
    "timeout_s": _seconds,
    **dict.fromkeys(("code", "reason", "run_id", "sweep", "study", "wall"), _text),
}
