"""Reads a result: turns a folder into a :class:`Record`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from suite.log.canonical import sha256_hex
from suite.log.days import all_exist
from suite.log.files import Raw, read_folder
from suite.log.finding import Defect, RecordError
from suite.log.grammar import null_defects, order_defects
from suite.log.lines import KINDS, MAX_DEFECTS, parse, rules_version
from suite.log.model import Event, Record, Repeat
from suite.log.quick import quick_events
from suite.rules.schemas import Schemas, schemas_for


def read_result(path: str | Path) -> Record:
    """The log in ``path``: a result's folder, a ``.partial`` folder, or the run.jsonl in one.

    Raises :class:`RecordError` with the defects of the format (rules LOG-...): canonical lines, chain,
    numbering, schemas, order of events, reasons of nulls. The rules of :mod:`suite.checker` are not applied.
    """
    return record_of(read_folder(Path(path)))


def record_of(raw: Raw, schemas_of: Callable[[object], Schemas] = schemas_for) -> Record:
    """The record in ``raw``; ``schemas_of`` returns the schemas of a rules version."""
    events = tuple(quick_events(raw.data, schemas_of) or careful_events(raw.data, raw.partial, schemas_of))
    _raise_if_any(order_defects(events, raw.partial))
    of_repeat: defaultdict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.repeat is not None:
            of_repeat[event.repeat].append(event)
    repeats = {index: Repeat(index, tuple(found)) for index, found in sorted(of_repeat.items())}
    _raise_if_any(null_defects(events, repeats))
    footer = events[-1] if events[-1].kind == "footer" else None
    return Record(
        header=events[0],
        repeats=tuple(repeats.values()),
        footer=footer,
        events=events,
        digest=sha256_hex(raw.data),
        name=raw.name,
        files=raw.files,
        partial=raw.partial,
        changes=raw.changes,
    )


def careful_events(
    data: bytes, partial: bool, schemas_of: Callable[[object], Schemas] = schemas_for
) -> list[Event]:
    """The events in a log's bytes, read line by line; RecordError with the defects of lines and schemas."""
    envelopes = parse(data, partial)
    _raise_if_any(_schema_defects(envelopes, schemas_of(rules_version(envelopes[0]))))
    return [Event(e["seq"], e["kind"], e["repeat"], e["mono_ns"], e["wall"], e["data"]) for e in envelopes]


def _schema_defects(envelopes: list[dict[str, Any]], schemas: Schemas) -> Iterator[Defect]:
    kinds = [kind for kind in KINDS if kind in schemas.names]  # a rules version may have fewer kinds
    for number, envelope in enumerate(envelopes, start=1):
        kind = envelope.get("kind")
        if not schemas.valid("envelope", envelope):
            yield from _explained(schemas, "envelope", envelope, f"line {number}")
        elif not all_exist([envelope["wall"]]):
            yield Defect(
                "LOG-014", f"line {number}.wall", "a date that exists in the calendar", envelope["wall"]
            )
        elif kind not in kinds:
            yield Defect("LOG-013", f"line {number}", "a kind of " + ", ".join(kinds), str(kind))
        elif not schemas.valid(kind, envelope["data"]):
            yield from _explained(schemas, kind, envelope["data"], f"line {number} ({kind}), data")


def _explained(schemas: Schemas, name: str, value: Any, location: str) -> Iterator[Defect]:
    for path, message in schemas.explain(name, value):
        yield Defect(
            "LOG-014", f"{location}{'.' if path else ''}{path}", f"what schemas/{name}.json allows", message
        )


def _raise_if_any(defects: Iterable[Defect]) -> None:
    if first := list(islice(defects, MAX_DEFECTS)):
        raise RecordError(first)
