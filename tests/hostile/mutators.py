"""Mutators of logs: of their bytes, and of their events with a repaired chain, as by a forger.

All choices come from the frozen stream, so that (seed, index) makes the same input on every machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from suite.common.stream import Stream
from suite.log.canonical import ZERO, sha256_hex

T = TypeVar("T")
Events = list[dict[str, Any]]
_DRAWS = 64
ODD_BYTES = (
    b"\x00", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\u0000", b"\\ud800", b'"', b"\\",
    b"{", b"}", b"[" * 40, b"]", b",", b":", b"\n", b"\r", b" ", b"-", b".5", b"e9", b"1" * 30, b"NaN",
    b"null", b"1e400", b"\x1b[2J", "\u202e".encode(), b"::error::", b"true", b'"seq":0,', b"\x7f", b"'",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**53 - 1, -(2**53) + 1, 2**53, 2**63, 1.5, -0.0, 1e300, "", "0", "a",
    "-1", "nan", "inf", "-inf", "0x1p+1023", "0x1p-1074", "0x1.8p+9999", "1e999", "0" * 64, "f" * 64,
    "x" * 5000,
    "\u202e", "é", "::error::", "=1+1", "$x_{", "/home/x/y", "../../etc/passwd", "practice", "0.1", "1.0",
    "2026-13-45T99:99:99.999999Z", [], {}, [[]], [None], {"": None}, {"a": {"a": {"a": 1}}}, [0] * 300,
)  # fmt: skip
# Values at the limits of the schemas.
EDGES: tuple[Any, ...] = (
    "0x1.fffffffffffffp+1023",
    "-0x1.fffffffffffffp+1023",
    "0x0.0p+0",
    "0x1.0000000000000p-1022",
    2**53 - 1,
    1,
)


class Choice:
    """Draws of one input, by position in the stream of (seed, index)."""

    def __init__(self, seed: int, index: int) -> None:
        self._bits = Stream("hostile", seed, index).bits(_DRAWS).tolist()
        self._at = 0

    def below(self, bound: int) -> int:
        """An integer in [0, bound); the draws repeat after 64, because inputs need not be independent."""
        self._at = (self._at + 1) % _DRAWS
        return int(self._bits[self._at] % bound)

    def of(self, values: Sequence[T]) -> T:
        """One of ``values``."""
        return values[self.below(len(values))]


def mutate_bytes(data: bytes, choice: Choice) -> bytes:
    """One to four edits of the bytes: flip, insert, cut, repeat, swap."""
    found = bytearray(data)
    for _ in range(1 + choice.below(4)):
        at = choice.below(max(1, len(found)))
        length = 1 + choice.below(40)
        kind_of_edit = choice.below(6)
        if kind_of_edit == 0 and found:
            found[at] ^= 1 << choice.below(8)
        elif kind_of_edit == 1:
            found[at:at] = choice.of(ODD_BYTES)
        elif kind_of_edit == 2:
            del found[at : at + length]
        elif kind_of_edit == 3:
            found[at:at] = found[at : at + length]
        elif kind_of_edit == 4:
            found[at : at + length] = choice.of(ODD_BYTES)
        else:
            del found[at:]
    return bytes(found)


def _holders(value: Any, found: list[Any]) -> list[Any]:
    """Every object and list inside ``value`` that is not empty."""
    if isinstance(value, dict | list) and value:
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            _holders(inner, found)
    return found


def _value(events: Events, choice: Choice) -> dict[str, Any]:
    event = choice.of(events)
    holder = choice.of(_holders(event, []))
    name = choice.of(list(holder)) if isinstance(holder, dict) else choice.below(len(holder))
    before = holder[name]
    kind_of_edit = choice.below(6)
    if kind_of_edit == 0 and isinstance(before, int):
        holder[name] = before + choice.of((-1, 1, 1000, -before, -2 * before, before))
    elif kind_of_edit == 1:
        del holder[name]
    elif kind_of_edit == 2 and isinstance(holder, dict):
        holder[choice.of(("", "x", "reasons", "kind", "\u202e", "ns"))] = before
    elif kind_of_edit == 3 and isinstance(before, str) and before:
        holder[name] = before[: choice.below(len(before))] + choice.of(("", "0", "f", "-", "\u202e"))
    else:
        holder[name] = copy.deepcopy(choice.of(ODD_VALUES))
    return event


def mutate_value(value: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """One to three edits inside ``value``, an object that is not empty and is edited in place."""
    for _ in range(1 + choice.below(3)):
        if value:
            _value([value], choice)
    return value


def _everywhere(events: Events, choice: Choice) -> dict[str, Any]:
    """One field of every event of a kind, which reaches sums over events."""
    event = choice.of(events)
    data = event.get("data")
    if not isinstance(data, dict) or not data:
        return event
    name, value = choice.of(list(data)), choice.of((*ODD_VALUES, *EDGES))
    for one in events:
        if one.get("kind") == event.get("kind") and isinstance(one.get("data"), dict):
            one["data"][name] = copy.deepcopy(value)
    return event


def _drop(events: Events, choice: Choice) -> dict[str, Any]:
    return events.pop(choice.below(len(events))) if len(events) > 1 else events[0]


def _double(events: Events, choice: Choice) -> dict[str, Any]:
    event = copy.deepcopy(choice.of(events))
    events.insert(choice.below(len(events) + 1), event)
    return event


def _swap(events: Events, choice: Choice) -> dict[str, Any]:
    one, other = choice.below(len(events)), choice.below(len(events))
    events[one], events[other] = events[other], events[one]
    return events[one]


def _retype(events: Events, choice: Choice) -> dict[str, Any]:
    event, other = choice.of(events), choice.of(events)
    event["kind"] = other.get("kind")
    return event


_EDITS: tuple[Callable[[Events, Choice], dict[str, Any]], ...] = (
    _value, _value, _value, _value, _value, _everywhere, _drop, _double, _swap, _retype,
)  # fmt: skip


def mutate_events(lines: Sequence[bytes], choice: Choice) -> tuple[bytes, Events]:
    """One to three edits of events, with a repaired chain; returns the bytes and the edited events."""
    events = [orjson.loads(line) for line in lines]
    edited = [choice.of(_EDITS)(events, choice) for _ in range(1 + choice.below(3))]
    return chained(events), edited


def chained(events: Events) -> bytes:
    """The bytes of ``events``, of any content, with repaired numbering and chain."""
    previous, out = ZERO, []
    for number, event in enumerate(events):
        data = event.get("data")
        if event.get("kind") == "footer" and isinstance(data, dict) and "events" in data:
            data["events"] = len(events)
        try:
            line = (
                orjson.dumps({**event, "seq": number, "prev": previous}, option=orjson.OPT_SORT_KEYS) + b"\n"
            )
        except (TypeError, orjson.JSONEncodeError):
            line = b'{"data":null}\n'
        previous = sha256_hex(line)
        out.append(line)
    return b"".join(out)
