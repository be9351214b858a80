"""A line of an MLPerf log as a typed, frozen event, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

V05, V06, V07 = "v0.5", "v0.6", "v0.7"  # MLP, MLL and MLLOG; the last one serves v0.7 and all later rounds
START, END, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
TYPES = (START, END, POINT)
_LARGEST = 1 << 63


@dataclass(frozen=True, slots=True)
class MllogEvent:
    """One event. ``time_ms`` counts from the epoch (LoadGen: from its start); ``line`` from 1."""

    line: int
    form: str
    process: str  # the rank before the token, the namespace, LoadGen's pid and tid; "" where nothing tells
    time_ms: float
    key: str
    value: Any
    metadata: Mapping[str, Any]
    event_type: str | None  # None in v0.5 and v0.6, and in some lines of later rounds


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that holds a token and is no event. ``text`` is the stranger's: never print it unescaped."""

    line: int
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class Log:
    """What the bytes of one log say. Only the first malformed lines are kept; ``malformed`` counts all."""

    lines: int
    events: tuple[MllogEvent, ...]
    malformed: int
    shown: tuple[Malformed, ...]

    @property
    def forms(self) -> tuple[str, ...]:
        """The formats that occur, in their order in time."""
        found = {event.form for event in self.events}
        return tuple(form for form in (V05, V06, V07) if form in found)


def number(value: object) -> float | None:
    """``value`` as a finite number; None for anything else, truth values included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) < _LARGEST:  # NaN, infinities, and integers that fit into no float
        return None
    return float(value)
