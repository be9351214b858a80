"""What a rule sees, and how it is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from suite.record import statistics
from suite.record.model import Event, Record, Repeat
from suite.rules import Rules
from suite.workloads import names, specification
from suite.workloads.contract import Key, Specification

WORDS, STRUCTURE, CONTENT = "words", "structure", "content"
STAGES = (WORDS, STRUCTURE, CONTENT)  # a stage runs only when the one before rejected nothing


class Fault(NamedTuple):
    """What a rule function yields: place, expected, actual. The rule's id and severity are added to it."""

    place: str
    expected: str
    actual: str


@dataclass(frozen=True)
class HeaderContext:
    """What can be judged before a run: the header's data and the rules."""

    header: Mapping[str, Any]
    rules: Rules

    @cached_property
    def key(self) -> Key:
        """What is to be measured."""
        return Key(**self.header["key"])

    @cached_property
    def spec(self) -> Specification:
        """The workload's specification; ValueError for an unknown workload (stage ``words`` checks it)."""
        return specification(self.key.workload)

    @property
    def workload_rules(self) -> Mapping[str, Any]:
        """The rules of this workload; ValueError for an unknown one (stage ``words`` checks it)."""
        return self.rules.workload(self.key.workload)

    @property
    def known_workloads(self) -> tuple[str, ...]:
        """The workloads that have a specification and rules."""
        return tuple(name for name in names() if self.rules.has("workloads", name))

    @property
    def division(self) -> str:
        """Closed, open or practice."""
        return str(self.header["division"])

    @property
    def mode(self) -> str:
        """Throughput or quality."""
        return str(self.header["mode"])

    def allowed(self, rule_id: str) -> bool:
        """Whether a departure from this rule of closed is allowed: outside closed, where it is declared."""
        return self.division != "closed" and any(row["rule"] == rule_id for row in self.header["differences"])

    @property
    def image(self) -> Mapping[str, Any] | None:
        """The header's image; None where no container ran."""
        found: Mapping[str, Any] | None = self.header["image"]
        return found

    @cached_property
    def locked(self) -> Mapping[str, Any] | None:
        """The lock's entry of the header's image; None without an image or entry."""
        if self.image is None or "lock" not in self.image:  # the rules 0.1 have images without a lock's name
            return None
        return self.rules.bases().get(self.image["lock"])

    @cached_property
    def published(self) -> Mapping[str, Any] | None:
        """What was published for the code in the header's image, above its base; None if nothing was."""
        if self.locked is None or self.image is None:
            return None
        image, key = self.image, self.key
        found = self.rules.lock.published(
            key.workload, key.framework, image["code_digest"], image["platform"], image["lock"]
        )
        return None if found is None else found.entry

    @property
    def converts(self) -> bool:
        """Whether pictures are converted and no model runs."""
        return self.key.phase == "preprocess"

    def reference(self) -> bool:
        """Whether the published scale is measured."""
        return self.key.scale == "reference"


@dataclass(frozen=True)
class Context(HeaderContext):
    """What can be judged after a run."""

    record: Record

    @cached_property
    def repeats(self) -> tuple[Repeat, ...]:
        """The repeats that completed: rules about what was measured look at these."""
        return tuple(repeat for repeat in self.record.repeats if repeat.end is not None)

    @cached_property
    def device(self) -> Mapping[str, Any] | None:
        """The table's entry of the one device in it that the facts tell, by its name or its PCI id.

        None where they tell no such device, or several.
        """
        told: set[str] = set()
        for event in self.record.all("env"):
            told.update(strings(event["facts"]))
        found = self.rules.devices(told)
        return found[0] if len(found) == 1 else None

    @cached_property
    def durations(self) -> tuple[tuple[str, Repeat, int, tuple[int, ...]], ...]:
        """(place, repeat, worker, durations in ns) wherever marks say when a step ended."""
        if self.record.mark_kind == "host_dispatch":
            return ()
        return tuple(
            (
                f"repeat {repeat.index}, worker {worker}, mark_ns",
                repeat,
                worker,
                repeat.durations_ns(worker),
            )
            for repeat in self.repeats
            for worker in repeat.workers
        )

    @cached_property
    def relative_durations(self) -> tuple[tuple[str, list[float]], ...]:
        """(place, durations over those of equal work): what drift and outliers are judged by.

        Nothing of a conversion: its shards are made side by side, and the time from one mark to the next is
        not that of a shard.
        """
        if self.converts:
            return ()
        work = [
            [step.data["units"] for step in repeat.steps_of(worker, "measured")]
            for _, repeat, worker, _ in self.durations
        ]
        found = statistics.relative([curve for *_, curve in self.durations], work)
        return tuple((place, values) for (place, *_), values in zip(self.durations, found, strict=True))

    @cached_property
    def drifts(self) -> tuple[tuple[str, float], ...]:
        """(place, drift) of the relative durations."""
        return tuple((place, statistics.drift(values)) for place, values in self.relative_durations)

    def seed(self, repeat: Repeat) -> int:
        """The seed that the repeat says it used."""
        return int(start_of(repeat)["seed"], 16)


def departs(c: HeaderContext, rule_id: str, fault: Fault) -> Iterator[Fault]:
    """``fault``, unless the division allows departures and the header declares this one."""
    if not c.allowed(rule_id):
        if c.division == "open":
            fault = Fault(fault.place, f"{fault.expected}, or declared in data.differences", fault.actual)
        yield fault


def start_of(repeat: Repeat) -> Event:
    """The repeat's start (the grammar guarantees it)."""
    assert repeat.start is not None
    return repeat.start


def end_of(repeat: Repeat) -> Event:
    """The end of a completed repeat."""
    assert repeat.end is not None
    return repeat.end


def framework_of(repeat: Repeat) -> tuple[Event, Mapping[str, Any]]:
    """The inside facts of a repeat (RUN-004 guarantees them), and what the framework tells of itself in them.

    Nothing where that is no object: facts are free in form, and ENV-012 says so.
    """
    inside = repeat.env("inside")
    assert inside is not None
    described = inside["facts"].get("framework")
    return inside, described if isinstance(described, Mapping) else {}


def strings(holder: Mapping[str, Any] | list[Any]) -> list[str]:
    """Every string inside an object or list of parsed JSON, but for names of fields."""
    found: list[str] = []
    for inner in holder if isinstance(holder, list) else holder.values():
        kind = type(inner)
        if kind is str:
            found.append(inner)
        elif kind is dict or kind is list:
            found += strings(inner)
    return found


HeaderCheck = Callable[[HeaderContext], Iterator[Fault]]
RecordCheck = Callable[[Context], Iterator[Fault]]


@dataclass(frozen=True, slots=True)
class Registered:
    """One rule function with what decides whether it runs."""

    id: str
    stage: str
    before: bool  # needs the header alone: applied before a run too
    mode: str | None  # only in this mode
    check: Callable[[Any], Iterator[Fault]]


REGISTRY: dict[str, Registered] = {}


def header_rule(id_: str, stage: str = CONTENT) -> Callable[[HeaderCheck], HeaderCheck]:
    """Register a rule that needs the header alone."""

    def register(check: HeaderCheck) -> HeaderCheck:
        _add(Registered(id_, stage, True, None, check))
        return check

    return register


def rule(id_: str, stage: str = CONTENT, mode: str | None = None) -> Callable[[RecordCheck], RecordCheck]:
    """Register a rule that needs the whole record; ``mode`` limits it to throughput or quality runs."""

    def register(check: RecordCheck) -> RecordCheck:
        _add(Registered(id_, stage, False, mode, check))
        return check

    return register


def _add(registered: Registered) -> None:
    if registered.id in REGISTRY:
        raise RuntimeError(f"rule {registered.id} is registered twice")
    REGISTRY[registered.id] = registered
