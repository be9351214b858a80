"""All mutants of a log: each field of each kind of event, changed in one position or everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

from suite.common.stream import Stream
from tests.fixtures.forging import Events
from tests.sweep.mutators import DROP, mutations

Path = tuple[str | int, ...]
ONE, ALL = "one", "all"
_SHORT = 16  # from this length a text is an identity, and is replaced everywhere in the log
_KEPT = ("prev", "seq", "v")  # recomputed by a forger
_COPIED = "from another repeat"
_FORMS = (
    "retype",
    "retype to text",
    "one field more",
)  # the schemas refuse these in one position: not tried in all


class Mutant(NamedTuple):
    """One forgery; ``forge`` edits a list of events and replaces changed events by copies."""

    kind: str
    field: str  # path in the event; list items are *
    name: str
    scope: str  # one | all
    forge: Callable[[Events], None]

    @property
    def id(self) -> str:
        """The id in tables and lists."""
        return f"{self.kind} {self.field} | {self.name} | {self.scope}"


def mutants(events: Events, seed: int) -> Iterator[Mutant]:
    """All mutants of a log, in a fixed order; ``seed`` selects the position for scope "one"."""
    draw = _Draw(seed)
    for (kind, _, field), positions in _fields(events).items():
        yield from _of_field(events, kind, field, positions, draw)
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
    """The fields that distinguish events of one kind: side, source, at, phase."""
    data = event.get("data")
    if not isinstance(data, dict):
        return ""
    return " ".join(str(data[name]) for name in ("side", "source", "at", "phase") if name in data)


def _fields(events: Events) -> dict[tuple[str, str, str], list[tuple[int, Path]]]:
    """The positions of each field: (kind, variant, path with * as list index) to events and paths."""
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
    container: Any = events[index]
    for part in path[:-1]:
        container = container[part]
    if value is not DROP:
        container[path[-1]] = value
    elif isinstance(container, dict):
        container.pop(path[-1], None)
    else:
        del container[path[-1]]


def _copy_for_edit(events: Events, index: int) -> None:
    """Replace the event by a copy that may be edited."""
    events[index] = orjson.loads(orjson.dumps(events[index]))


def _of_field(
    events: Events, kind: str, field: str, positions: list[tuple[int, Path]], draw: _Draw
) -> Iterator[Mutant]:
    index, path = positions[draw.below(len(positions))]
    value = value_at(events[index], path)
    for name, new in mutations(value):
        yield Mutant(kind, field, name, ONE, _one(index, path, new))
        if name not in _FORMS and (len(positions) > 1 or kind == "header" or len(str(value)) >= _SHORT):
            yield Mutant(kind, field, name, ALL, _everywhere(positions, value, name, new))
    neighbour = next(
        (position for position in positions if value_at(events[position[0]], position[1]) != value), None
    )
    if neighbour is not None:
        yield Mutant(kind, field, "exchanged with another", ONE, _exchange((index, path), neighbour))
    other = next((at for at in positions if events[at[0]]["repeat"] != events[index]["repeat"]), None)
    if other is not None and value_at(events[other[0]], other[1]) != value:
        copied = value_at(events[other[0]], other[1])
        yield Mutant(kind, field, _COPIED, ONE, _one(index, path, copied))


def _one(index: int, path: Path, new: Any) -> Callable[[Events], None]:
    def forge(events: Events) -> None:
        _copy_for_edit(events, index)
        _put(events, index, path, new)

    return forge


def _exchange(one: tuple[int, Path], other: tuple[int, Path]) -> Callable[[Events], None]:
    def forge(events: Events) -> None:
        values = value_at(events[other[0]], other[1]), value_at(events[one[0]], one[1])
        for (index, path), value in zip((one, other), values, strict=True):
            _copy_for_edit(events, index)
            _put(events, index, path, value)

    return forge


def _everywhere(
    positions: list[tuple[int, Path]], value: Any, name: str, new: Any
) -> Callable[[Events], None]:
    """The same mutation of all positions of the field; an identity is replaced in the whole log."""

    def forge(events: Events) -> None:
        if isinstance(value, str) and len(value) >= _SHORT and isinstance(new, str):
            old, put = orjson.dumps(value), orjson.dumps(new)
            for index, event in enumerate(events):
                line = orjson.dumps(event)
                if old in line:
                    events[index] = orjson.loads(line.replace(old, put))
        for index in dict.fromkeys(index for index, _ in positions):
            _copy_for_edit(events, index)
        for index, path in reversed(
            positions
        ):  # so that items deleted from a list keep the indices of the others
            changed = dict(mutations(value_at(events[index], path))).get(name, new)
            _put(events, index, path, changed)
        if [index for index, _ in positions] == [0]:
            _twin(events, positions[0][1], new)

    return forge


def _twin(events: Events, path: Path, new: Any) -> None:
    """Repeat the change of a field in key, header and settings, as a forger would."""
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
    """Replace the data of all events of one kind in a repeat by those of the next (or first) repeat."""
    last = max(event["repeat"] or 0 for event in events)
    source = repeat + 1 if repeat < last else 0
    theirs = [index for index, one in enumerate(events) if (one["kind"], one["repeat"]) == (kind, source)]
    ours = [index for index, one in enumerate(events) if (one["kind"], one["repeat"]) == (kind, repeat)]

    def forge(found: Events) -> None:
        for index, at in zip(ours, theirs, strict=False):
            found[index] = {**found[index], "data": found[at]["data"]}

    return forge
