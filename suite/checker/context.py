"""The arguments of rule functions, and their registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, NamedTuple

from suite.contract import (
    BENCHMARK,
    CONVERSION,
    LOAD,
    STEPS,
    ConversionKey,
    Key,
    Specification,
    units_of_window,
)
from suite.log import statistics
from suite.log.model import Event, Record, Repeat
from suite.rules import Rules
from suite.workloads import names, specification

KEY, STRUCTURE, CONTENT = "key", "structure", "content"
WITH_KEY = (BENCHMARK, LOAD)  # the kinds of jobs that have a benchmark key
COUNTS_DECLARED = "DIV-015"  # the departure of a run with other repeats or steps
STAGES = (KEY, STRUCTURE, CONTENT)  # a stage runs only when the one before rejected nothing


class Fault(NamedTuple):
    """The yield of a rule function. The checker adds the rule's id, severity and fix."""

    location: str
    expected: object  # both are reported as str()
    found: object


@dataclass(frozen=True)
class HeaderContext:
    """The facts known before a run: the header's data and the rules."""

    header: Mapping[str, Any]
    rules: Rules

    @property
    def kind(self) -> str:
        """The kind of the job: benchmark, load or conversion."""
        return str(self.header["kind"])

    @cached_property
    def key(self) -> Key:
        """What a benchmark or a load measures; KeyError for a conversion, which their rules never receive."""
        return Key(**self.header["key"])

    @cached_property
    def conversion(self) -> ConversionKey | None:
        """What a conversion measures; None for any other job."""
        return ConversionKey(**self.header["conversion"]) if self.kind == CONVERSION else None

    @property
    def subject(self) -> Key | ConversionKey:
        """What is measured: the key of the job."""
        return self.conversion or self.key

    @property
    def location(self) -> str:
        """The location of :attr:`subject` in the log."""
        return f"header, data.{'key' if self.conversion is None else CONVERSION}"

    @property
    def phase(self) -> str:
        """The phase of the key, or conversion."""
        return CONVERSION if self.conversion is not None else self.key.phase

    @property
    def real(self) -> bool:
        """Whether a dataset is read."""
        return self.conversion is not None or self.key.data == "real"

    @property
    def devices(self) -> int:
        """The number of devices of the run; 1 for a conversion, which only uses the processor."""
        return 1 if self.conversion is not None else self.key.devices

    @property
    def nodes(self) -> int:
        """The number of nodes of the run; 1 for a conversion."""
        return 1 if self.conversion is not None else self.key.nodes

    @cached_property
    def spec(self) -> Specification:
        """The workload's specification; ValueError for an unknown workload (stage ``key`` checks it)."""
        return specification(self.subject.workload)

    @property
    def workload_rules(self) -> Mapping[str, Any]:
        """The rules of this workload; ValueError for an unknown one (stage ``key`` checks it)."""
        return self.rules.workload(self.subject.workload)

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
        """Throughput or quality; a conversion counts as throughput."""
        return str(self.header.get("mode", "throughput"))

    def allowed(self, rule_id: str) -> bool:
        """Whether the header declares a departure from this rule, which only closed forbids."""
        return self.division != "closed" and any(row["rule"] == rule_id for row in self.header["differences"])

    @property
    def counts(self) -> dict[str, int]:
        """Repeats, warm-up steps and measured steps by the rules, or as the header declares (DIV-015)."""
        limits = self.rules.limits
        counts = {**limits["counts"], "repeats": limits["modes"][self.mode]["repeats"]}
        if self.allowed(COUNTS_DECLARED) and self.kind in WITH_KEY:
            counts["repeats"] = self.header["repeats"]
            if self.mode == "throughput":
                counts["measured_steps"] = self.header["measured_steps"]
        return counts

    @property
    def image(self) -> Mapping[str, Any] | None:
        """The container image in the header; None where no container ran."""
        found: Mapping[str, Any] | None = self.header["image"]
        return found

    @cached_property
    def locked(self) -> Mapping[str, Any] | None:
        """The lock's entry of the container image; None without an image or entry."""
        if self.image is None:
            return None
        return self.rules.bases().get(self.image["lock"])

    @cached_property
    def published(self) -> Mapping[str, Any] | None:
        """The published layers for the code in the container image, above its base; or None."""
        if self.locked is None or self.image is None:
            return None
        image, key = self.image, self.subject
        found = self.rules.lock.published(
            key.workload, key.framework, image["code_digest"], image["platform"], image["lock"]
        )
        return None if found is None else found.entry

    @property
    def hyperparameters(self) -> Mapping[str, str]:
        """The hyperparameters in the specification of a benchmark."""
        return self.spec.hyperparameters(self.key.scale, self.key.variant)

    @property
    def fingerprinted(self) -> bool:
        """Whether a run of this kind has a fingerprint: a benchmark in mode throughput."""
        return self.mode == "throughput" and self.kind == BENCHMARK

    @property
    def reference(self) -> bool:
        """Whether the run is at reference scale."""
        return self.subject.scale == "reference"


@dataclass(frozen=True)
class Context(HeaderContext):
    """The facts known after a run: the whole log."""

    record: Record

    @cached_property
    def repeats(self) -> tuple[Repeat, ...]:
        """The completed repeats, which rules about measurements read."""
        return tuple(repeat for repeat in self.record.repeats if repeat.end is not None)

    @cached_property
    def reports(self) -> tuple[Event, ...]:
        """The rank_end events of all completed repeats."""
        return tuple(report for repeat in self.repeats for report in repeat.reports)

    @cached_property
    def device(self) -> Mapping[str, Any] | None:
        """The device table's entry of the only device that the facts mention by name or PCI id.

        None if the facts mention no device of the table, or several.
        """
        reported: set[str] = set()
        for event in self.record.all("env"):
            reported.update(strings(event["facts"]))
        found = self.rules.devices(reported)
        return found[0] if len(found) == 1 else None

    @property
    def on_processor(self) -> bool:
        """Whether the run computed on processors; ENV-012 compares this with the framework's facts."""
        return self.conversion is not None or self.header["settings"].get("device") == "cpu"

    @cached_property
    def cores(self) -> int:
        """The processor cores of all nodes, at most ``most_cores`` of a node; that many where unknown."""
        most, total = int(self.rules.limit("most_cores")), 0
        for event in self.repeats[0].envs_of("outside") if self.repeats else ():
            cpu = event["facts"].get("cpu")
            stated = [cpu.get(name) for name in ("cores", "threads")] if isinstance(cpu, Mapping) else []
            known = [number for number in stated if type(number) is int and number > 0]
            total += min(known[0], most) if known else most
        return total or most

    @cached_property
    def peaks(self) -> tuple[float | None, float | None]:
        """FLOP/s in the key's precision and bytes/s of memory that the run's devices can reach together.

        None where nothing is known. A GPU that the table lacks has generic limits, a processor so many FLOP/s
        per core; no bandwidth, because its caches may hold a whole model.
        """
        precision = self.key.precision
        if self.on_processor:
            return self.rules.limit(f"core_flops_{precision}") * self.cores, None
        device = self.device or self.rules.unlisted_device
        flops = device["flops"].get(precision)
        return (
            None if flops is None else float(flops) * self.devices,
            float(device["memory_bytes_per_s"]) * self.devices,
        )

    @cached_property
    def durations(self) -> tuple[tuple[str, Repeat, int, tuple[int, ...]], ...]:
        """(location, repeat, rank, durations in ns), unless timestamps are those of dispatch."""
        if self.record.timestamp_kind == "host_dispatch":
            return ()
        return tuple(
            (
                f"repeat {repeat.index}, rank {rank}, step_end_ns",
                repeat,
                rank,
                repeat.durations_ns(rank),
            )
            for repeat in self.repeats
            for rank in repeat.ranks
        )

    @cached_property
    def relative_durations(self) -> tuple[tuple[str, list[float]], ...]:
        """(location, durations relative to those of equal work), for the rules on drift and outliers.

        None of a load, a conversion or an input-bound window: batches are read and shards written in parallel
        and ahead, and the time between two timestamps is not the duration of one.
        """
        if self.kind != BENCHMARK:
            return ()
        work = [
            [s["units"] for s in repeat.steps_of(rank, "measured")] for _, repeat, rank, _ in self.durations
        ]
        found = statistics.relative([curve for *_, curve in self.durations], work)
        return tuple(
            (location, values)
            for (location, repeat, rank, _), values in zip(self.durations, found, strict=True)
            if not self._input_bound(repeat, rank)
        )

    def _input_bound(self, repeat: Repeat, rank: int) -> bool:
        """Whether the rank waited for batches of real data for at least a tenth of the window."""
        waited = sum(one["input_wait_ns"] or 0 for one in repeat.reports if one["rank"] == rank)
        return self.key.data == "real" and waited >= self.rules.limit("input_bound") * (repeat.window_ns or 0)

    def units(self, repeat: Repeat) -> tuple[int, ...]:
        """The units of work that each step of ``repeat`` must contain."""
        if self.conversion is not None:
            return (self.conversion.batch,) * STEPS  # the first 110 shards are full
        usual = self.spec.units(self.key.of_batches, int(start_of(repeat)["seed"], 16))
        return units_of_window(usual, self.counts["measured_steps"])


def departs(c: HeaderContext, rule_id: str, faults: Iterable[Fault]) -> Iterator[Fault]:
    """``faults``, unless :meth:`HeaderContext.allowed`; in open they may be declared in data.differences."""
    if not c.allowed(rule_id):
        for fault in faults:
            if c.division == "open":
                fault = fault._replace(expected=f"{fault.expected}, or declared in data.differences")
            yield fault


def start_of(repeat: Repeat) -> Event:
    """The repeat's start, which the order of events guarantees."""
    assert repeat.start is not None
    return repeat.start


def end_of(repeat: Repeat) -> Event:
    """The end of a completed repeat."""
    assert repeat.end is not None
    return repeat.end


def frameworks_of(repeat: Repeat) -> Iterator[tuple[Event, Event, Mapping[str, Any]]]:
    """(rank_end, inside facts, their entry ``framework``) of each rank of a completed repeat.

    RUN-004 guarantees both events. The entry is empty where it is no object: the schema does not restrict
    facts, and ENV-012 reports it.
    """
    for report, inside in zip(repeat.reports, repeat.envs_of("inside"), strict=True):
        described = inside["facts"].get("framework")
        yield report, inside, described if isinstance(described, Mapping) else {}


def counter_change(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, name: str
) -> int | None:
    """The difference of counter ``name``; None where one of the two readings lacks it."""
    first, last = (None if one is None else one.get(name) for one in (before, after))
    return None if first is None or last is None else int(last - first)


def strings(container: Mapping[str, Any] | list[Any]) -> list[str]:
    """Every string inside an object or list of parsed JSON, except field names."""
    found: list[str] = []
    for inner in container if isinstance(container, list) else container.values():
        kind = type(inner)
        if kind is str:
            found.append(inner)
        elif kind is dict or kind is list:
            found += strings(inner)
    return found


Kinds = str | tuple[str, ...]
Check = Callable[[Any], Iterator[Fault]]
HeaderCheck = Callable[[HeaderContext], Iterator[Fault]]
RecordCheck = Callable[[Context], Iterator[Fault]]


@dataclass(frozen=True, slots=True)
class RuleFunction:
    """One rule function and the conditions under which it is applied."""

    id: str
    stage: str
    before: bool  # needs only the header: also applied before a run
    mode: str | None  # only in this mode
    check: Check
    kinds: tuple[str, ...] = ()  # only for these kinds of jobs; empty: for all


RULE_FUNCTIONS: dict[str, RuleFunction] = {}


def header_rule(
    id_: str, stage: str = CONTENT, kind: Kinds = (), *, declarable: bool = False
) -> Callable[[HeaderCheck], HeaderCheck]:
    """Register a rule that needs only the header. For ``kind`` and ``declarable`` see :func:`rule`."""

    def register(check: HeaderCheck) -> HeaderCheck:
        _add(id_, stage, None, kind, _departing(id_, check) if declarable else check, before=True)
        return check

    return register


def rule(
    id_: str,
    stage: str = CONTENT,
    mode: str | None = None,
    kind: Kinds = (),
    *,
    declarable: bool = False,
) -> Callable[[RecordCheck], RecordCheck]:
    """Register a rule that needs the whole record.

    ``mode`` limits it to throughput or quality runs, ``kind`` to kinds of jobs. All faults of a
    ``declarable`` rule go through :func:`departs`.
    """

    def register(check: RecordCheck) -> RecordCheck:
        _add(id_, stage, mode, kind, _departing(id_, check) if declarable else check)
        return check

    return register


def _departing(id_: str, check: Check) -> Check:
    @wraps(check)
    def departures(c: HeaderContext) -> Iterator[Fault]:
        return departs(c, id_, check(c))

    return departures


def _add(id_: str, stage: str, mode: str | None, kind: Kinds, check: Check, before: bool = False) -> None:
    if id_ in RULE_FUNCTIONS:
        raise RuntimeError(f"rule {id_} is registered twice")
    kinds = (kind,) if isinstance(kind, str) else kind
    RULE_FUNCTIONS[id_] = RuleFunction(id_, stage, before, mode, check, kinds)
