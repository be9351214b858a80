"""The object model of a log, which the reader returns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from suite.contract import BENCHMARK, CONVERSION, ConversionKey, Key
from suite.log import statistics
from suite.log.files import Changes

Data = Mapping[str, Any]


@dataclass(slots=True, eq=False)  # frozen: three times slower to create, and a log has hundreds
class Event:
    """One line of the log, never modified. ``mono_ns`` counts from the run's first event."""

    seq: int
    kind: str
    repeat: int | None
    mono_ns: int
    wall: str
    data: Data

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    @property
    def line(self) -> int:
        """The line in run.jsonl, from 1."""
        return self.seq + 1

    def location(self, field: str = "") -> str:
        """The location in the log of this event, or of one field of its data."""
        where = f"line {self.line} ({self.kind}"
        where += "" if self.repeat is None else f", repeat {self.repeat}"
        if self.kind == "step":
            where += f", rank {self.data.get('rank')}, step {self.data.get('step')}"
        return where + ")" + (f", data.{field}" if field else "")


class EventHolder:
    """Base of objects that consist of events."""

    events: tuple[Event, ...]

    def all(self, kind: str) -> tuple[Event, ...]:
        """The events of one kind, in the order of the log."""
        return tuple(self._by_kind.get(kind, ()))

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        found: defaultdict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            found[event.kind].append(event)
        return found


@dataclass(frozen=True)
class Repeat(EventHolder):
    """One fresh start of all ranks. An interrupted repeat has no ``end``."""

    index: int
    events: tuple[Event, ...]

    def _one(self, kind: str) -> Event | None:
        found = self.all(kind)
        return found[0] if found else None

    @cached_property
    def start(self) -> Event | None:
        """The repeat_start event."""
        return self._one("repeat_start")

    @cached_property
    def end(self) -> Event | None:
        """The repeat_end event; None when the repeat did not complete."""
        return self._one("repeat_end")

    @cached_property
    def reports(self) -> tuple[Event, ...]:
        """The rank_end events, in rank order."""
        return tuple(sorted(self.all("rank_end"), key=lambda event: int(event["rank"])))

    @cached_property
    def sweeps(self) -> tuple[Event, ...]:
        """The exchange_sweep events, in rank order."""
        return tuple(sorted(self.all("exchange_sweep"), key=lambda event: int(event["rank"])))

    @cached_property
    def envs(self) -> tuple[Event, ...]:
        """The env events: side "outside" of each node, side "inside" of each rank."""
        return self.all("env")

    @cached_property
    def clocks(self) -> tuple[Event, ...]:
        """The clock triples."""
        return self.all("clock")

    @cached_property
    def clock_at(self) -> dict[str, Event]:
        """Node 0's clock triples by the point at which they were read, such as "window_open"."""
        return {event.data["at"]: event for event in self.clocks if event.data["node"] == 0}

    def timestamps_end_ns(self, report: Event) -> int:
        """The last timestamp of a rank's window and its closing copy, in ns from the start of the window."""
        last = self.steps_of(report["rank"], "measured")[-1]
        return int(last["step_end_ns"]) + (report["window"]["collect_ns"] or 0)

    def drift_ns(self, report: Event) -> int:
        """How far that is from the length of the window.

        On a GPU this is what its clock drifted against the host's, which times windows and arrivals.
        """
        return abs(int(report["window"]["ns"]) - self.timestamps_end_ns(report))

    def clock_error_ns(self, node: int) -> int | None:
        """The largest error of the window's times of ``node`` on node 0's clock; None if it is unknown.

        They are converted with the mean of the offsets before and after the window: to the error of both is
        added half of what the clocks drifted apart in between.
        """
        if node == 0:
            return 0
        found = [event for event in self.clocks if event["node"] == node and "bound_ns" in event.data]
        # Quality mode reads no clocks at the window.
        found = [event for event in found if event["at"].startswith("window_")] or found
        if not found:
            return None
        origins = [seconds * 1_000_000_000 + ns for seconds, ns in (event["origin"] for event in found)]
        bound = max(int(event["bound_ns"]) for event in found)
        return bound + int(max(origins) - min(origins) + 1) // 2

    @cached_property
    def telemetry(self) -> tuple[Event, ...]:
        """Counters at window start and end, and samples."""
        return self.all("telemetry")

    @cached_property
    def evaluations(self) -> tuple[Event, ...]:
        """The quality evaluations (mode quality)."""
        return self.all("evaluation")

    @cached_property
    def steps(self) -> tuple[Event, ...]:
        """All step events of all ranks."""
        return self.all("step")

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have steps, ascending."""
        return tuple(sorted(set(self.column("rank"))))

    def steps_of(self, rank: int, phase: str | None = None) -> tuple[Event, ...]:
        """One rank's steps, of one phase (warmup, measured) or all."""
        return self._steps_by.get((rank, phase), ())

    @cached_property
    def _steps_by(self) -> dict[tuple[int, str | None], tuple[Event, ...]]:
        """Steps by rank and phase, computed once for the dozen rules that use them."""
        found: defaultdict[tuple[int, str | None], list[Event]] = defaultdict(list)
        ranks, phases = self.column("rank"), self.column("phase")
        for key, step in zip(zip(ranks, phases, strict=True), self.steps, strict=True):
            found[key].append(step)
        if len(self.ranks) == 1:
            return {(self.ranks[0], None): self.steps} | {key: tuple(steps) for key, steps in found.items()}
        for rank, step in zip(ranks, self.steps, strict=True):
            found[rank, None].append(step)
        return {key: tuple(steps) for key, steps in found.items()}

    def column(self, name: str, rank: int | None = None) -> tuple[Any, ...]:
        """One field of all steps, or of one rank's steps, in their order; None where a step lacks the field.

        The columns are cached, because many rules read the same few fields of every step.
        """
        rank = None if rank is None or self.ranks == (rank,) else rank
        values = self._table(rank).get(name)
        if values is None:
            return (None,) * len(self.steps if rank is None else self.steps_of(rank))
        return values

    def _table(self, rank: int | None) -> dict[str, tuple[Any, ...]]:
        if rank not in self._columns:
            steps = self.steps if rank is None else self.steps_of(rank)
            self._columns[rank] = _columns([step.data for step in steps])
        return self._columns[rank]

    @property
    def null_fields(self) -> set[str]:
        """The fields that are null in some step."""
        candidates = [name for name, values in self._table(None).items() if None in values]
        return {name for name in candidates if any(s.data.get(name, "") is None for s in self.steps)}

    @cached_property
    def _columns(self) -> dict[int | None, dict[str, tuple[Any, ...]]]:
        return {}

    def losses(self, rank: int) -> tuple[float | None, ...]:
        """The losses of one rank's steps as numbers; None where a step has none."""
        if rank not in self._losses:
            self._losses[rank] = tuple(
                [None if loss is None else float.fromhex(loss) for loss in self.column("loss", rank)]
            )
        return self._losses[rank]

    @cached_property
    def _losses(self) -> dict[int, tuple[float | None, ...]]:
        return {}

    @cached_property
    def global_losses(self) -> tuple[float | None, ...]:
        """The loss of each global batch: the sum of the ranks' shares; None where one is missing."""
        if len(self.ranks) == 1:
            return self.losses(self.ranks[0])
        shares = zip(*map(self.losses, self.ranks), strict=False)
        return tuple([None if None in some else statistics.total(some) for some in shares])

    @cached_property
    def global_units(self) -> tuple[int, ...]:
        """The units of work of each step of the global batch: the sum of the ranks' shares."""
        if len(self.ranks) == 1:
            return self.column("units")
        return tuple(map(sum, zip(*[self.column("units", rank) for rank in self.ranks], strict=False)))

    def durations_ns(self, rank: int = 0) -> tuple[int, ...]:
        """The measured steps' durations (ns) by the timestamps of one rank."""
        if rank not in self._durations:
            timestamps = [event.data["step_end_ns"] for event in self.steps_of(rank, "measured")]
            self._durations[rank] = statistics.durations(timestamps)
        return self._durations[rank]

    @cached_property
    def _durations(self) -> dict[int, tuple[int, ...]]:
        return {}

    def env(self, side: str) -> Event | None:
        """The env event of side "outside" or "inside": of node 0, or of rank 0."""
        return next(iter(self.envs_of(side)), None)

    def envs_of(self, side: str) -> tuple[Event, ...]:
        """The env events of side "outside" by node, or "inside" by rank."""
        return self._envs_by.get(side, ())

    @cached_property
    def _envs_by(self) -> dict[str, tuple[Event, ...]]:
        found: defaultdict[str, list[Event]] = defaultdict(list)
        for event in self.envs:
            found[event.data["side"]].append(event)
        return {
            side: tuple(sorted(some, key=lambda event: (event.data["node"], event.data.get("rank", 0))))
            for side, some in found.items()
        }

    def counters(self, at: str, node: int = 0) -> Event | None:
        """One node's counters at "window_open" or "window_close"."""
        return self._counters.get((node, at))

    def counter_pairs(self) -> tuple[tuple[Event | None, Event | None], ...]:
        """The counters of each node at window start and window end."""
        nodes = 1 if self.start is None else int(self.start["nodes"])
        names = ("window_open", "window_close")
        return tuple((self.counters(names[0], node), self.counters(names[1], node)) for node in range(nodes))

    @cached_property
    def _counters(self) -> dict[tuple[int, str], Event]:
        """The first counters by node and window start or end, cached for the many rules that read them."""
        counted = [event for event in self.telemetry if event.data["source"] == "counters"]
        return {(event.data["node"], event.data["at"]): event for event in reversed(counted)}

    def samples(self, at: str) -> tuple[Event, ...]:
        """The telemetry samples of the "soak", the "window" or the "tail"."""
        return tuple(e for e in self.all_samples if e.data["at"] == at)

    @property
    def all_samples(self) -> tuple[Event, ...]:
        """The telemetry samples in the order of the log."""
        return tuple(e for e in self.telemetry if e.data["source"] == "sample")

    @property
    def window_ns(self) -> int | None:
        """The official time of the repeat; None when it did not complete."""
        return None if self.end is None else int(self.end.data["window"]["ns"])

    @property
    def units(self) -> int | None:
        """The window's units of work; None when the repeat did not complete or did not count them."""
        return None if self.end is None or self.end["units"] is None else int(self.end["units"])


def _columns(rows: Sequence[Data]) -> dict[str, tuple[Any, ...]]:
    """The values of each field over all rows."""
    names = set(map(tuple, rows))
    if len(names) == 1:  # all rows have the same fields; canonical JSON fixes their order
        return dict(zip(names.pop(), zip(*[row.values() for row in rows], strict=True), strict=True))
    return {name: tuple([row.get(name) for row in rows]) for name in set().union(*names)}


@dataclass(frozen=True)
class Record(EventHolder):
    """A log with valid lines, chain, schemas and order of events; the rules are not yet applied."""

    header: Event
    repeats: tuple[Repeat, ...]
    footer: Event | None  # None in a .partial
    events: tuple[Event, ...]
    digest: str  # SHA-256 of run.jsonl
    name: str  # of the folder
    files: tuple[str, ...]  # names in the folder, sorted
    partial: bool
    changes: Changes | None = None  # None without changes.patch

    @property
    def kind(self) -> str:
        """The kind of the job: benchmark, load or conversion."""
        return str(self.header.data["kind"])

    @property
    def computes(self) -> bool:
        """Whether a model ran: in a benchmark, but not in a load or a conversion."""
        return self.kind == BENCHMARK

    @cached_property
    def key(self) -> Key:
        """What a benchmark or a load measured; KeyError for a conversion."""
        return Key(**self.header.data["key"])

    @cached_property
    def conversion(self) -> ConversionKey | None:
        """What a conversion measured; None for any other job."""
        return ConversionKey(**self.header.data["conversion"]) if self.kind == CONVERSION else None

    @property
    def subject(self) -> Key | ConversionKey:
        """What was measured: the key of the job."""
        return self.conversion or self.key

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self.header.data["run_id"])

    @property
    def mode(self) -> str:
        """Throughput or quality; a conversion counts as throughput."""
        return str(self.header.data.get("mode", "throughput"))

    @property
    def division(self) -> str:
        """Closed, open or practice."""
        return str(self.header.data["division"])

    @property
    def fingerprint(self) -> Event | None:
        """The fingerprint event, the first where there are several; None without one."""
        return next(iter(self.all("fingerprint")), None)

    @property
    def aborts(self) -> tuple[Event, ...]:
        """The abort event, if the run was interrupted (at most one)."""
        return self.all("abort")

    @property
    def outcome(self) -> str | None:
        """The footer's outcome: completed, aborted, out_of_memory; None without a footer."""
        return None if self.footer is None else str(self.footer["outcome"])

    @property
    def completed(self) -> bool:
        """Whether the footer reports completion; only completed runs have a score."""
        return self.outcome == "completed"

    @cached_property
    def throughput(self) -> statistics.Throughput | None:
        """Throughput and spread over the completed repeats; None when there is none."""
        done = [repeat for repeat in self.repeats if repeat.end is not None]
        windows = [repeat.window_ns or 0 for repeat in done]
        units = [repeat.units or 0 for repeat in done]
        if not done or min(windows) <= 0 or min(units) <= 0:
            return None  # no repeat, or units not counted (quality)
        return statistics.throughput(windows, units)

    @cached_property
    def timestamp_kind(self) -> str | None:
        """How timestamps were taken: device, host_completion, host_dispatch; None in quality runs."""
        return next((report["timestamp_kind"] for r in self.repeats for report in r.reports), None)

    @cached_property
    def pooled_ns(self) -> tuple[int, ...] | None:
        """Durations of all measured steps of all repeats and ranks; None for host_dispatch timestamps."""
        if self.timestamp_kind in (None, "host_dispatch"):
            return None
        return tuple(ns for r in self.repeats if r.end for rank in r.ranks for ns in r.durations_ns(rank))
