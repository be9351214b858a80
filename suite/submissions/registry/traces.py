"""What is kept of each submission to compare it with all others.

Each check builds the traces from the submissions again, so that they are always up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

from suite.contract import key_fields
from suite.log import fingerprint
from suite.log.canonical import encode, sha256_hex
from suite.log.model import Event, Record, Repeat
from suite.submissions.registry.model import Benchmark, parse_time
from suite.submissions.registry.population import Figure, figure_of

_CHUNK = 20  # neighbours among the sorted losses of a repeat that are compared together
_SHARED = 0.16  # of its losses, that a repeat may share with another: more are no evidence of their seeds
MIN_REPEATS = 3  # repeats for a median, as in rule COPY-002, and to see what depends on the seed


Span = tuple[datetime, datetime]  # of a repeat: its beginning and its end


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
    digest: str = ""  # of run.jsonl
    numbers: tuple[tuple[str, str], ...] = ()  # (what, digest) of numbers that no other honest run computes
    signed: bool = False  # by a valid key of its submitter
    rejected: bool = False  # by itself, whatever the others are
    figure: Figure | None = None  # its throughput; None where it is rejected or has none
    repeats: tuple[Span, ...] = ()  # when each began and ended

    @property
    def submitter(self) -> str:
        """The submitter's folder; empty for a result that is no submission."""
        return self.benchmark.submitter

    @property
    def busy(self) -> tuple[Span, ...]:
        """When the run used its devices: during its repeats. Between them an interleaved run may do so."""
        return self.repeats or ((self.started, self.ended),)

    def as_dict(self) -> dict[str, Any]:
        """The trace as JSON values, to leave the sandbox."""
        times = {"started": self.started.isoformat(), "ended": self.ended.isoformat()}
        repeats = [[began.isoformat(), ended.isoformat()] for began, ended in self.repeats]
        return {**asdict(self), **times, "repeats": repeats, "devices": sorted(self.devices)}

    @classmethod
    def of_dict(cls, value: Mapping[str, Any]) -> Trace:
        """The trace from the JSON values of :meth:`as_dict`."""
        changed = {
            "benchmark": Benchmark(*value["benchmark"]),
            "started": datetime.fromisoformat(value["started"]),
            "ended": datetime.fromisoformat(value["ended"]),
            "devices": frozenset(value["devices"]),
            "curves": tuple(tuple(map(tuple, repeats)) for repeats in value["curves"]),
            "numbers": tuple(map(tuple, value["numbers"])),
            "repeats": tuple(
                (datetime.fromisoformat(began), datetime.fromisoformat(ended))
                for began, ended in value["repeats"]
            ),
            "figure": None if value["figure"] is None else Figure(**value["figure"]),
        }
        return cls(**{**value, **changed})


def trace_of(record: Record, location: str, submitter: str, system: str, *, accepted: bool = True) -> Trace:
    """The trace of ``record``, packaged at ``location``; ``system`` is the name of its folder.

    A result that is not ``accepted`` has no figure: its fields may not agree with each other.
    """
    key = sha256_hex(
        encode(key_fields(record.subject))
    )  # the harness's ledger names benchmarks in the same way
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
        work=None if not record.computes else f"{record.key.workload} {record.key.phase}",
        bitwise=fingerprint.bitwise_class(record),
        common=_computed(record, fingerprint.common_pass),
        own=_computed(record, _telling_own_pass),
        digest=record.digest,
        numbers=tuple(dict.fromkeys(_numbers(record))),
        figure=figure_of(record) if accepted else None,
        repeats=tuple(_repeats(record)),
    )


def _repeats(record: Record) -> Iterator[Span]:
    """When the first and the last event of each repeat were written; a fingerprint belongs to repeat 0."""
    for repeat in record.repeats:
        times = [parse_time(event.wall) for event in repeat.events]
        yield min(times), max(times)


def _computed(record: Record, choose: Callable[[Event], fingerprint.Pass | None]) -> str | None:
    one = None if record.fingerprint is None else choose(record.fingerprint)
    return None if one is None else fingerprint.computed(one)


def _telling_own_pass(event: Event) -> fingerprint.Pass | None:
    """The pass on the run's own batch; None if its outputs are zero in every step, whatever the batch.

    Fingerprints of faster_rcnn once had detections in place of scores, of which untrained weights have none:
    those outputs were equally empty in all honest runs.
    """
    one = fingerprint.own_pass(event)
    empty = one is not None and "outputs" in one and not any(map(float.fromhex, one["output_norms"]))
    return None if empty else one


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


def _numbers(record: Record) -> Iterator[tuple[str, str]]:
    """(what, digest) of losses, outputs and weights of timed repeats, whatever the order of their steps.

    Honest runs compute equal numbers where nothing depends on the seed: inference on synthetic batches, or
    the first steps of a training on them. The repeats of a run have different seeds, so they show what
    depends on the seed: what they share is left out. Where the batches do not depend on it and only rounding
    or dropout makes repeats differ, all repeats together are one number.
    """
    repeats = [repeat for repeat in record.repeats if repeat.end is not None]
    if not record.computes or len(repeats) < MIN_REPEATS:
        return
    seeded = not _share([_measured(repeat, "batch_digest") for repeat in repeats], 0.5)
    outputs = [_measured(repeat, "output_digest") for repeat in repeats]
    if seeded and not _share(outputs, 0.5):
        yield from (("outputs", _digest("outputs", some)) for some in outputs)
    if record.key.phase != "train":
        return
    losses = [_losses(repeat) for repeat in repeats]
    if not _share(losses, _SHARED):
        yield "losses", _digest("losses of the run", sorted(loss for some in losses for loss in some))
        for some in losses if seeded else ():
            # In parts, so that one changed loss does not hide the others.
            parts = [some[at : at + _CHUNK] for at in range(0, len(some), _CHUNK)]
            yield from (("losses", _digest("losses", part)) for part in parts if len(set(part)) == _CHUNK)
    weights = [str(repeat.reports[0]["parameters"]["final"]) for repeat in repeats if repeat.reports]
    if "None" not in weights and len(set(weights)) == len(repeats):
        yield "weights", _digest("weights of the run", sorted(weights))
        yield from (("weights", _digest("weights", [one])) for one in weights if seeded)


def _measured(repeat: Repeat, name: str) -> list[str]:
    """One field of the measured steps of rank 0, sorted; none where a step lacks it."""
    found = [event.data.get(name) for event in repeat.steps_of(0, "measured")]
    return [] if None in found else sorted(map(str, found))


def _losses(repeat: Repeat) -> list[str]:
    """The losses of the measured steps over all ranks, sorted as text; none where a step has none."""
    pairs = zip(repeat.column("phase", 0), repeat.global_losses, strict=False)
    found = [None if loss is None else loss.hex() for phase, loss in pairs if phase == "measured"]
    return [] if None in found else sorted(map(str, found))


def _share(repeats: Sequence[Sequence[str]], share: float) -> bool:
    """Whether a repeat has no values, or two repeats share more than ``share`` of them."""
    sets = [set(values) for values in repeats]
    return not all(sets) or any(
        len(one & other) > share * min(len(one), len(other)) for one, other in combinations(sets, 2)
    )


def _digest(name: str, values: Sequence[str]) -> str:
    return sha256_hex("\n".join([name, *values]).encode())  # of 10,000 steps: more than a line of a log holds
