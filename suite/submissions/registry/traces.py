"""The rules that compare submissions: copied or similar timings, devices in use twice, nonces, attempts.

Each check rebuilds the index of traces from the submissions, so that it is always up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from suite.log import fingerprint, statistics
from suite.log.canonical import encode, sha256_hex
from suite.log.model import Event, Record
from suite.rules import load
from suite.rules.root import LATEST
from suite.submissions.registry.model import Benchmark, Breach, Registry, parse_time

GRAM = 16  # consecutive equal durations that prove a copy, as within a run (rule COPY-001)
CHANCE = 0.2  # collision probability above which sixteen consecutive equal durations may be chance
MIN_REPEATS = 3  # repeats for a median, as in rule COPY-002


@dataclass(frozen=True, slots=True)
class Trace:
    """The index entry of one submission. ``location`` is its folder under submissions/."""

    location: str
    run_id: str
    benchmark: Benchmark
    attempt: int
    counted: bool  # whether its purpose is submission, so that the ledger counts its attempts
    nonce: str | None
    started: datetime
    ended: datetime
    devices: frozenset[str]
    curves: tuple[tuple[tuple[int, ...], ...], ...]  # by rank and repeat: step durations (ns)
    work: str | None = None  # workload and phase, whose step times are comparable; None for conversions
    bitwise: str | None = None  # the class of runs with equal fingerprints; then the digests of its passes
    common: str | None = None
    own: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The trace as JSON values, to leave the sandbox."""
        times = {"started": self.started.isoformat(), "ended": self.ended.isoformat()}
        return {**asdict(self), **times, "devices": sorted(self.devices)}

    @classmethod
    def of_dict(cls, value: Mapping[str, Any]) -> Trace:
        """The trace from the JSON values of :meth:`as_dict`."""
        changed = {
            "benchmark": Benchmark(*value["benchmark"]),
            "started": datetime.fromisoformat(value["started"]),
            "ended": datetime.fromisoformat(value["ended"]),
            "devices": frozenset(value["devices"]),
            "curves": tuple(tuple(map(tuple, repeats)) for repeats in value["curves"]),
        }
        return cls(**{**value, **changed})


def trace_of(record: Record, location: str, submitter: str, system: str) -> Trace:
    """The trace of ``record``, packaged at ``location``; ``system`` is the name of its folder."""
    key = sha256_hex(encode(asdict(record.subject)))  # the harness's ledger names benchmarks in the same way
    return Trace(
        location=location,
        run_id=record.run_id,
        benchmark=Benchmark(submitter, system, key),
        attempt=int(record.header["attempt"]),
        counted=record.header["purpose"] == "submission",
        nonce=record.header["nonce"],
        started=parse_time(record.events[0].wall),
        ended=parse_time(record.events[-1].wall),
        devices=frozenset(_devices(record)),
        curves=tuple(_curves(record)),
        work=None if record.conversion is not None else f"{record.key.workload} {record.key.phase}",
        bitwise=fingerprint.bitwise_class(record),
        common=_computed(record, fingerprint.common_pass),
        own=_computed(record, fingerprint.own_pass),
    )


def _computed(record: Record, choose: Callable[[Event], fingerprint.Pass | None]) -> str | None:
    one = None if record.fingerprint is None else choose(record.fingerprint)
    return None if one is None else fingerprint.computed(one)


def _devices(record: Record) -> Iterator[str]:
    """The hashed UUIDs of the run's devices, from facts and telemetry."""
    for event in record.events:
        listed: object = None
        if event.kind == "env" and event["side"] == "outside":
            accelerators = event["facts"].get("accelerators")
            listed = accelerators.get("devices") if isinstance(accelerators, Mapping) else None
        elif event.kind == "telemetry":
            listed = event["devices"]
        for device in listed if isinstance(listed, list) else ():
            uuid = device.get("uuid") if isinstance(device, Mapping) else None
            if isinstance(uuid, str):
                yield uuid


def _curves(record: Record) -> Iterator[tuple[tuple[int, ...], ...]]:
    if record.timestamp_kind in (None, "host_dispatch"):
        return
    repeats = [repeat for repeat in record.repeats if repeat.end is not None]
    for rank in sorted({rank for repeat in repeats for rank in repeat.ranks}):
        yield tuple(repeat.durations_ns(rank) for repeat in repeats if rank in repeat.ranks)


def copied_durations(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Sixteen consecutive durations that occur in two submissions, unless the timer is too coarse."""
    owners: dict[tuple[int, ...], list[tuple[Trace, tuple[int, ...]]]] = {}
    for trace in traces:
        reported: set[str] = set()
        for curve in chain.from_iterable(trace.curves):
            for at in range(len(curve) - GRAM + 1):
                gram = curve[at : at + GRAM]
                known = owners.setdefault(gram, [])
                for other, theirs in known:
                    if (
                        other is trace
                        or other.location in reported
                        or statistics.collision(curve + theirs) > CHANCE
                    ):
                        continue
                    reported.add(other.location)
                    yield Breach(
                        "REG-007",
                        f"{trace.location}, step_end_ns",
                        f"durations that differ from those of {other.location}",
                        f"{GRAM} consecutive equal durations",
                    )
                if not any(other is trace for other, _ in known):
                    known.append((trace, curve))


def similar_noise(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Timing noise correlated with that of another submission: rule COPY-002, applied to two runs.

    Shifted dates, scaling and a few nanoseconds more per step change every duration but not their order. All
    submissions of one workload and phase are compared, whatever their keys, so that relabelling is useless.
    """
    limit = load(LATEST).limit("copy_correlation")
    groups: dict[tuple[str | None, int], list[tuple[Trace, list[float]]]] = {}
    for trace in traces:
        for noise in _noises(trace):
            groups.setdefault((trace.work, len(noise)), []).append((trace, noise))
    for group in groups.values():
        reported: set[tuple[str, str]] = set()
        ranked = [statistics.centred_ranks(noise) for _, noise in group]
        for first, second, found in statistics.correlations(ranked):
            if found <= limit:
                continue
            (before, theirs), (trace, ours) = group[first], group[second]
            if before is trace or (before.location, trace.location) in reported:
                continue
            # Warming GPUs have similar slow noise, so the changes of the noise must be correlated as well.
            found = min(found, statistics.correlation_of_changes(theirs, ours))
            if found > limit:
                reported.add((before.location, trace.location))
                wanted = f"independent noise: correlation with {before.location} at most {limit}"
                yield Breach("REG-012", f"{trace.location}, step_end_ns", wanted, f"{found:.3f}")


def _noises(trace: Trace) -> Iterator[list[float]]:
    """Step times minus the median over repeats, for each repeat; none where the timer is coarse."""
    for repeats in trace.curves if trace.work is not None else ():
        whole = len(repeats) >= MIN_REPEATS and len({len(curve) for curve in repeats}) == 1
        if whole and min(len(set(curve)) for curve in repeats) >= load(LATEST).limit("copy_distinct"):
            yield from statistics.noise(repeats)


def overlapping_runs(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Runs on one device at the same time, by the clocks in the logs."""
    last: dict[str, Trace] = {}
    reported: set[tuple[str, str]] = set()
    for trace in sorted(traces, key=lambda one: (one.started, one.location)):
        for device in sorted(trace.devices):
            before = last.get(device)
            if (
                before is not None
                and trace.started < before.ended
                and (before.location, trace.location) not in reported
            ):
                reported.add((before.location, trace.location))
                yield Breach(
                    "REG-008",
                    f"{trace.location}, device {device[:16]}",
                    f"a start after {before.ended.isoformat()}, when {before.location} ended on this device",
                    trace.started.isoformat(),
                )
            if before is None or trace.ended > before.ended:
                last[device] = trace


def reused_nonces(traces: Iterable[Trace]) -> Iterator[Breach]:
    """A nonce used by two submissions."""
    first: dict[str, Trace] = {}
    for trace in traces:
        if trace.nonce is None:
            continue
        before = first.setdefault(trace.nonce, trace)
        if before is not trace:
            where = f"{trace.location}, header, data.nonce"
            yield Breach("REG-003", where, "a nonce that no other run used", f"that of {before.location}")


def uncounted_attempts(traces: Iterable[Trace], registry: Registry) -> Iterator[Breach]:
    """Gaps in the ledger of attempts, and submission runs that are missing from it."""
    for benchmark, counted in registry.attempts.items():
        missing = sorted(set(range(1, max(counted) + 1)) - set(counted))
        if missing:
            where = (
                f"registry, attempts.json, {benchmark.submitter} {benchmark.system} {benchmark.digest[:16]}"
            )
            yield Breach("REG-006", where, f"attempts 1 to {max(counted)}", f"none with number {missing[0]}")
    for trace in traces:
        found = registry.attempts.get(trace.benchmark, {}).get(trace.attempt)
        if trace.counted and found != trace.run_id:
            wanted = f"attempt {trace.attempt} of this benchmark in the registry's attempts.json"
            yield Breach("REG-006", f"{trace.location}, header, data.attempt", wanted, found or "none")


def fingerprint_breaches(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Different fingerprints within one class, or one run's own fingerprint in two submissions."""
    equal: dict[str, Trace] = {}
    owners: dict[str, Trace] = {}
    for trace in traces:
        if trace.bitwise is not None and trace.common is not None:
            first = equal.setdefault(trace.bitwise, trace)
            if first.common != trace.common:
                where = f"{trace.location}, fingerprint, pass common"
                yield Breach(
                    "REG-010", where, f"the bits of {first.location}, a run of the same class", "other bits"
                )
        if trace.own is not None and owners.setdefault(trace.own, trace) is not trace:
            where = f"{trace.location}, fingerprint, pass own"
            yield Breach(
                "REG-011", where, "numbers unique to this run", f"those of {owners[trace.own].location}"
            )


def tree_breaches(traces: Iterable[Trace], registry: Registry) -> list[Breach]:
    """The breaches of all rules that compare submissions or read the ledger."""
    known = list(traces)
    return [
        *reused_nonces(known),
        *uncounted_attempts(known, registry),
        *copied_durations(known),
        *similar_noise(known),
        *overlapping_runs(known),
        *fingerprint_breaches(known),
    ]
