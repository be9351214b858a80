"""One log as one run: start and end, status, seeds, settings and evaluations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any

from suite.mllog.events import V05, MllogEvent, ParsedLog, number
from suite.mllog.rounds import V05_KEYS, benchmark_name

SUBMISSION = tuple(f"submission_{name}" for name in ("benchmark", "org", "division", "status", "platform"))
_SETTINGS = (
    "global_batch_size", "train_samples", "eval_samples", "gradient_accumulation_steps",
    "max_sequence_length", "max_samples", "micro_batch_size", "tensor_parallelism", "pipeline_parallelism",
    "context_parallelism", "expert_parallelism", "num_image_candidates", "model_bn_span",
)  # fmt: skip
_SETTING_PREFIXES = (
    "opt_",
    "lars_opt_",
    "model_hp_",
    "train_hp_",
    "preproc_hp_",
    "input_hp_",
    "lowest_numerical",
)
_EVALUATIONS = ("eval_accuracy", "eval_error", "eval_iteration_accuracy")  # the last one in v0.5
_PROGRESS = ("epoch_num", "samples_count", "step_num")
_LONGEST = 2000
MIN_INTERVALS = 8  # fewer can agree by chance
_MAX_INTERVALS = 400
_PRECISE, _MIN_EVALUATIONS = 8, 3  # characters of a value with six digits; fewer are equal by chance
# The keys whose events are logged when they happen; others are often printed late.
TIMED = (
    "init_st", "run_st", "run_final", "epoch_st", "block_st", "eval_st", "eval_accuracy", "eval_error",
    "train_epoch", "tracked_stats", "throughput",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: the progress (epochs, samples or steps; None where not logged), the value as logged."""

    event: MllogEvent
    at: float | None
    value: Any


@dataclass(frozen=True, slots=True)
class MllogRun:
    """The run that one log describes."""

    name: str  # of the file
    digest: str  # SHA-256 of the bytes
    log: ParsedLog
    submission_values: Mapping[str, tuple[str, ...]]  # distinct values of the submission_ keys
    starts: tuple[MllogEvent, ...]  # without repetitions of one event
    stops: tuple[MllogEvent, ...]
    status: str | None
    seeds: tuple[tuple[str, str, str], ...]  # file, line and seed
    settings: Mapping[str, str]  # first value of each, as JSON
    evaluations: tuple[Evaluation, ...]
    pace: str | None  # digest of the time between events; None where there are too few
    intervals: tuple[tuple[str, float], ...]  # ms between timed events of one process, by the two keys
    evaluated: str | None  # digest of the evaluations; None where there are too few different ones

    @property
    def benchmark(self) -> str | None:
        """The benchmark, by its name in the tables of rounds; None where the log names none or several."""
        names = {benchmark_name(name) for name in self.submission_values["submission_benchmark"]}
        return names.pop() if len(names) == 1 else None

    @property
    def division(self) -> str:
        """The division; empty where the log names none or several."""
        names = self.submission_values["submission_division"]
        return names[0].casefold() if len(names) == 1 else ""

    @property
    def minutes(self) -> float | None:
        """Minutes to train, as MLCommons' result summarizer computes them; None without start and stop.

        From the last run_start that precedes the first run_stop in the file, to that run_stop.
        """
        if not self.starts or not self.stops:
            return None
        stop = self.stops[0]
        before = [start for start in self.starts if start.line <= stop.line]
        return (stop.time_ms - (before[-1] if before else self.starts[0]).time_ms) / 60_000

    @property
    def batch(self) -> float | None:
        """The global batch size; None where the log has none."""
        try:
            return number(json.loads(self.settings.get("global_batch_size", "null")))
        except ValueError:  # a long text, truncated
            return None


def later_key(event: MllogEvent) -> str:
    """The event's key, by the name that later rounds use."""
    return V05_KEYS.get(event.key, event.key) if event.format == V05 else event.key


def mllog_run(name: str, data: bytes, log: ParsedLog) -> MllogRun:
    """The run of the parsed ``log`` with the bytes ``data``; ``name`` is the file's."""
    by_key: dict[str, list[MllogEvent]] = {}
    for event in log.events:
        by_key.setdefault(later_key(event), []).append(event)
    stops = _distinct(by_key.get("run_stop", ()))
    submission_values = {key: _texts(event.value for event in by_key.get(key, ())) for key in SUBMISSION}
    if not submission_values["submission_benchmark"]:  # v0.5 names it in every line
        submission_values["submission_benchmark"] = _texts(
            e.metadata.get("benchmark") for e in log.events if e.format == V05
        )
    evaluations = tuple(_evaluations(by_key))
    return MllogRun(
        name=name,
        digest=sha256(data).hexdigest(),
        log=log,
        submission_values=submission_values,
        starts=_distinct(by_key.get("run_start", ())),
        stops=stops,
        status=_status(stops[0]) if stops else None,
        seeds=tuple(_seed(event) for event in by_key.get("seed", ())),
        settings={key: shown(events[0].value) for key, events in by_key.items() if _is_setting(key)},
        evaluations=evaluations,
        pace=_pace(log.events),
        intervals=tuple(_intervals(log.events)),
        evaluated=_evaluated(evaluations),
    )


def shown(value: Any) -> str:
    """A value as JSON text, truncated."""
    return json.dumps(value, sort_keys=True)[:_LONGEST]


def _distinct(events: Iterable[MllogEvent]) -> tuple[MllogEvent, ...]:
    """Events of one key without repetitions: events of the same time are one event, logged twice."""
    by_time: dict[float, MllogEvent] = {}
    for event in events:
        by_time.setdefault(event.time_ms, event)
    return tuple(by_time.values())


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value if isinstance(value, str) else shown(value) for value in values))


def _status(stop: MllogEvent) -> str | None:
    """The status in metadata; in v0.5 and v0.6 also in the value: a text, true, or {"success": true}."""
    status = stop.metadata.get("status")
    value = (
        stop.value.get("success", stop.value.get("status")) if isinstance(stop.value, Mapping) else stop.value
    )
    if isinstance(status, str):
        return status
    if isinstance(value, bool):
        return "success" if value else "aborted"
    return value.strip() if isinstance(value, str) else None


def _seed(event: MllogEvent) -> tuple[str, str, str]:
    return shown(event.metadata.get("file")), shown(event.metadata.get("lineno")), shown(event.value)


def _is_setting(key: str) -> bool:
    return key in _SETTINGS or key.startswith(_SETTING_PREFIXES)


def _evaluations(by_key: Mapping[str, list[MllogEvent]]) -> Iterable[Evaluation]:
    """In order of time; metrics of one evaluation, logged as several events, are one evaluation."""
    merged: dict[float | None, Evaluation] = {}
    for event in sorted((e for key in _EVALUATIONS for e in by_key.get(key, ())), key=lambda e: e.time_ms):
        metric = event.metadata.get("metric")
        if event.format == V05 and isinstance(event.value, Mapping):
            progress = (number(event.value.get(name)) for name in ("epoch", "iteration"))
        else:
            progress = (number(event.metadata.get(name)) for name in _PROGRESS)
        at = next((found for found in progress if found is not None), None)
        if not isinstance(metric, str):
            yield Evaluation(event, at, event.value)
            continue
        before = merged.get(at)
        merged[at] = Evaluation(event, at, {**(before.value if before else {}), metric: event.value})
    yield from merged.values()


def _evaluated(evaluations: Iterable[Evaluation]) -> str | None:
    values = [shown(one.value) for one in evaluations]
    if len({value for value in values if len(value) >= _PRECISE}) < _MIN_EVALUATIONS:
        return None
    return sha256(repr(values).encode("utf-8", "backslashreplace")).hexdigest()


def _intervals(events: tuple[MllogEvent, ...]) -> Iterable[tuple[str, float]]:
    """Of the process that starts the run first, in the order of the log."""
    process = next((event.process for event in events if event.key == "run_start"), "")
    timed = [event for event in events if event.process == process and event.key.startswith(TIMED)]
    for before, after in pairwise(timed[: _MAX_INTERVALS + 1]):
        yield f"{before.key} {after.key}", round(after.time_ms - before.time_ms, 3)


def _pace(events: tuple[MllogEvent, ...]) -> str | None:
    """A digest of keys and times between events, equal for a copied log; None with too few events."""
    gaps = [
        (later_key(after), round(after.time_ms - before.time_ms, 3)) for before, after in pairwise(events)
    ]
    if sum(gap != 0 for _, gap in gaps) < MIN_INTERVALS:
        return None
    return sha256(repr(gaps).encode("utf-8", "backslashreplace")).hexdigest()
