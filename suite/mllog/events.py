"""A line of an MLPerf log as a typed, frozen event, for all three log formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

V05, V06, V07 = "v0.5", "v0.6", "v0.7"  # formats MLP, MLL and MLLOG; MLLOG serves v0.7 and all later rounds
START, END, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
TYPES = (START, END, POINT)
_LARGEST = 1 << 63


@dataclass(frozen=True, slots=True)
class MllogEvent:
    """One event. ``time_ms`` counts from the epoch (LoadGen: from its start); ``line`` from 1."""

    line: int
    format: str
    process: str  # rank before the token, namespace, LoadGen's pid and tid; "" where the line names none
    time_ms: float
    key: str
    value: Any
    metadata: Mapping[str, Any]
    event_type: str | None  # None in v0.5 and v0.6, and in some lines of later rounds


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that contains a token but no event. ``text`` is untrusted: escape it before printing."""

    line: int
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class ParsedLog:
    """The content of one log. ``shown`` holds the first malformed lines; ``malformed`` counts all.

    ``unreadable`` counts the lines whose end, from the last token on, is no event.
    """

    lines: int
    events: tuple[MllogEvent, ...]
    malformed: int
    shown: tuple[Malformed, ...]
    unreadable: int

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that occur, oldest first."""
        found = {event.format for event in self.events}
        return tuple(name for name in (V05, V06, V07) if name in found)


def number(value: object) -> float | None:
    """``value`` as a finite number; None for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) < _LARGEST:  # NaN, infinities, and integers too large for a float
        return None
    return float(value)
