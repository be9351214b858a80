"""Every mutant of a log: which field of which kind of event, changed how, in one place or everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

from suite.common.stream import Stream
from tests.fixtures.forging import Events
from tests.sweep.mutators import DROP, mutations

Path = tuple[str | int, ...]
ONE, ALL = "one", "all"
_SHORT = 16  # from this length a text is an identity, and is replaced wherever it stands
_KEPT = ("prev", "seq", "v")  # recomputed by whoever forges, or no field of the event's own
_COPIED = "from another repeat"
_FORMS = (
    "retype",
    "retype to text",
    "one field more",
)  # refused by the schemas in one place: not tried in all


class Mutant(NamedTuple):
    """One forgery; ``forge`` edits a list of events whose touched events it replaces by copies."""

    kind: str
    field: str  # path in the event; list items are *
    name: str
    scope: str  # one | all
    forge: Callable[[Events], None]

    @property
    def id(self) -> str:
        """What names it in tables and lists."""
        return f"{self.kind} {self.field} | {self.name} | {self.scope}"


def mutants(events: Events, seed: int) -> Iterator[Mutant]:
    """All mutants of a log, in a fixed order; ``seed`` says which place stands for a field in scope "one"."""
    draw = _Draw(seed)
    for (kind, _, field), places in _fields(events).items():
        yield from _of_field(events, kind, field, places, draw)
    for index in draw.one_of_each(events):
        yield from _of_event(events, index)


class _Draw:
    """Positions from the frozen stream."""

    def __init__(self, seed: int) -> None:
        self._seed, self._at = seed, 0

    def below(self, bound: int) -> int:
        self._at += 1
        return int(Stream("sweep", self._seed).integers(bound, 1, self._at)[0])

    def one_of_each(self, events: Events) -> list[int]:
        """The index of an event of each kind and variant."""
        groups: dict[tuple[str, str], list[int]] = {}
        for index, event in enumerate(events):
            groups.setdefault((event["kind"], variant(event)), []).append(index)
        return [found[self.below(len(found))] for found in groups.values()]


def variant(event: dict[str, Any]) -> str:
    """What tells events of one kind apart: side, source, place, phase."""
    data = event.get("data")
    if not isinstance(data, dict):
        return ""
    return " ".join(str(data[name]) for name in ("side", "source", "at", "phase") if name in data)


def _fields(events: Events) -> dict[tuple[str, str, str], list[tuple[int, Path]]]:
    """Where each field stands: (kind, variant, path with * for the place in a list) to events and paths."""
    found: dict[tuple[str, str, str], list[tuple[int, Path]]] = {}
    for index, event in enumerate(events):
        for path in _paths(event, ()):
            if path[0] not in _KEPT:
                field = ".".join("*" if isinstance(part, int) else part for part in path)
                found.setdefault((event["kind"], variant(event), field), []).append((index, path))
    return found


def _paths(value: Any, at: Path) -> Iterator[Path]:
    if at:
        yield at
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in parts:
        if isinstance(inner, dict | list):
            yield from _paths(inner, (*at, name))
        else:
            yield (*at, name)


def value_at(event: Any, path: Path) -> Any:
    """The value at ``path``."""
    for part in path:
        event = event[part]
    return event


def _put(events: Events, index: int, path: Path, value: Any) -> None:
    place: Any = events[index]
    for part in path[:-1]:
        place = place[part]
    if value is not DROP:
        place[path[-1]] = value
    elif isinstance(place, dict):
        place.pop(path[-1], None)
    else:
        del place[path[-1]]


def _own(events: Events, index: int) -> None:
    """Make the event one that may be edited."""
    events[index] = orjson.loads(orjson.dumps(events[index]))


def _of_field(
    events: Events, kind: str, field: str, places: list[tuple[int, Path]], draw: _Draw
) -> Iterator[Mutant]:
    index, path = places[draw.below(len(places))]
    value = value_at(events[index], path)
    for name, new in mutations(value):
        yield Mutant(kind, field, name, ONE, _one(index, path, new))
        if name not in _FORMS and (len(places) > 1 or kind == "header" or len(str(value)) >= _SHORT):
            yield Mutant(kind, field, name, ALL, _everywhere(places, value, name, new))
    neighbour = next((place for place in places if value_at(events[place[0]], place[1]) != value), None)
    if neighbour is not None:
        yield Mutant(kind, field, "exchanged with another", ONE, _exchange((index, path), neighbour))
    other = next((at for at in places if events[at[0]]["repeat"] != events[index]["repeat"]), None)
    if other is not None and value_at(events[other[0]], other[1]) != value:
        copied = value_at(events[other[0]], other[1])
        yield Mutant(kind, field, _COPIED, ONE, _one(index, path, copied))


def _one(index: int, path: Path, new: Any) -> Callable[[Events], None]:
    def forge(events: Events) -> None:
        _own(events, index)
        _put(events, index, path, new)

    return forge


def _exchange(one: tuple[int, Path], other: tuple[int, Path]) -> Callable[[Events], None]:
    def forge(events: Events) -> None:
        values = value_at(events[other[0]], other[1]), value_at(events[one[0]], one[1])
        for (index, path), value in zip((one, other), values, strict=True):
            _own(events, index)
            _put(events, index, path, value)

    return forge


def _everywhere(places: list[tuple[int, Path]], value: Any, name: str, new: Any) -> Callable[[Events], None]:
    """The same mutation wherever the field stands; an identity wherever its text stands, in the whole log."""

    def forge(events: Events) -> None:
        if isinstance(value, str) and len(value) >= _SHORT and isinstance(new, str):
            old, put = orjson.dumps(value), orjson.dumps(new)
            for index, event in enumerate(events):
                line = orjson.dumps(event)
                if old in line:
                    events[index] = orjson.loads(line.replace(old, put))
        for index in dict.fromkeys(index for index, _ in places):
            _own(events, index)
        for index, path in reversed(places):  # so that items deleted from a list leave the others in place
            changed = dict(mutations(value_at(events[index], path))).get(name, new)
            _put(events, index, path, changed)
        if [index for index, _ in places] == [0]:
            _twin(events, places[0][1], new)

    return forge


def _twin(events: Events, path: Path, new: Any) -> None:
    """Key, header and settings say some things again: a forger lets them agree."""
    data, last = events[0].get("data"), path[-1]
    if not isinstance(data, dict) or path[:2] not in (("data", "key"), ("data", last)) or last == "settings":
        return
    settings = data.get("settings")
    if isinstance(settings, dict) and last in settings:
        _put(events, 0, ("data", "settings", last), new)
        data["overrides"] = [text for text in data["overrides"] if not text.startswith(f"{last}=")]


def _of_event(events: Events, index: int) -> Iterator[Mutant]:
    event = events[index]
    kind, field = event["kind"], f"whole event {variant(event)}".rstrip()
    yield Mutant(kind, field, "delete", ONE, lambda found: found.pop(index))  # type: ignore[arg-type]
    yield Mutant(kind, field, "twice", ONE, lambda found: found.insert(index, found[index]))
    same = [at for at, one in enumerate(events) if one["kind"] == kind and variant(one) == variant(event)]
    chosen = set(same)
    yield Mutant(kind, field, "delete", ALL, _without(chosen))
    for name, at in (("exchanged with the next", index + 1), ("exchanged with the last", len(events) - 1)):
        if at < len(events) and at != index:
            yield Mutant(kind, field, name, ONE, _swap(index, at))
    other = next((at for at in same if events[at]["repeat"] != event["repeat"]), None)
    if other is not None:
        yield Mutant(kind, field, _COPIED, ONE, _one(index, ("data",), events[other]["data"]))
        yield Mutant(kind, field, _COPIED, ALL, _repeat_copied(events, kind, event["repeat"]))


def _without(chosen: set[int]) -> Callable[[Events], None]:
    def forge(events: Events) -> None:
        events[:] = [event for index, event in enumerate(events) if index not in chosen]

    return forge


def _swap(first: int, second: int) -> Callable[[Events], None]:
    def forge(events: Events) -> None:
        events[first], events[second] = events[second], events[first]

    return forge


def _repeat_copied(events: Events, kind: str, repeat: int) -> Callable[[Events], None]:
    """All of one kind in a repeat take the data of the next repeat's (or the first's)."""
    last = max(event["repeat"] or 0 for event in events)
    source = repeat + 1 if repeat < last else 0
    theirs = [index for index, one in enumerate(events) if (one["kind"], one["repeat"]) == (kind, source)]
    ours = [index for index, one in enumerate(events) if (one["kind"], one["repeat"]) == (kind, repeat)]

    def forge(found: Events) -> None:
        for index, at in zip(ours, theirs, strict=False):
            found[index] = {**found[index], "data": found[at]["data"]}

    return forge
