"""The checks of one log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

from suite.mllog.events import TYPES, V05, V07, MllogEvent, number
from suite.mllog.outcomes import CheckOutcome, failed, passed, undecided
from suite.mllog.rounds import STATUSES, Round, init_limit_minutes, normalised, target_for
from suite.mllog.runs import SUBMISSION, MllogRun, later_key, shown

_SIZES = ("global_batch_size", "train_samples", "eval_samples", "gradient_accumulation_steps")
_TIMED = ("init_st", "run_st", "run_final", "epoch_st", "block_st", "eval_st", "eval_accuracy", "train_epoch")
_ALLOWED_VALUES = {"submission_division": ("closed", "open"), "submission_status": STATUSES}


def check_run(run: MllogRun, mlperf_round: Round | None) -> Iterator[CheckOutcome]:
    """One outcome for each check of one log."""
    for check in _CHECKS:
        yield check(run, mlperf_round)


def _lines(run: MllogRun, _: Round | None) -> CheckOutcome:
    log = run.log
    if not log.events and not log.malformed:
        return failed(
            "lines", run.name, "lines with :::MLPv0.5.0, :::MLL or :::MLLOG", f"none in {log.lines} lines"
        )
    if log.malformed:
        first = log.shown[0]
        found = f"{log.malformed}, the first in line {first.line}: {first.why}: {first.text}"
        return failed("lines", run.name, "no malformed line", found)
    return passed("lines", run.name, f"{len(log.events)} events in {log.lines} lines")


def _types(run: MllogRun, _: Round | None) -> CheckOutcome:
    events = [event for event in run.log.events if event.format == V07]
    if not events:
        return undecided("types", run.name, "the format has no event types")
    unknown = [event for event in events if event.event_type not in (*TYPES, None)]
    if unknown:
        found = f"{unknown[0].event_type} in line {unknown[0].line}, {len(unknown)} in all"
        return failed("types", run.name, " or ".join(TYPES), found)
    return passed("types", run.name, f"{len(events)} events")


def _submission(run: MllogRun, _: Round | None) -> CheckOutcome:
    if run.log.formats == (V05,):
        return undecided("submission", run.name, "v0.5 states it in submission.json and entry.json")
    for key in SUBMISSION:
        values = run.submission_values[key]
        if len(values) != 1 or not values[0].strip() or values[0] == "null":
            return failed("submission", run.name, f"one {key}", ", ".join(values) or "none")
        if key in _ALLOWED_VALUES and values[0] not in _ALLOWED_VALUES[key]:
            return failed("submission", run.name, f"{key} {' or '.join(_ALLOWED_VALUES[key])}", values[0])
    return passed("submission", run.name, ", ".join(run.submission_values[key][0] for key in SUBMISSION))


def _life(run: MllogRun, _: Round | None) -> CheckOutcome:
    """Each rank may log start and stop; ranks that cannot be told apart must all start before one stops."""
    starts, stops = run.starts, run.stops
    if not starts or not stops:
        missing = "run_stop" if starts else "run_start"
        return failed("life", run.name, f"one {missing} of each process", "none")
    lines = f"lines {_lines_of(starts)} to {_lines_of(stops)}"
    for name, events in (("run_start", starts), ("run_stop", stops)):
        processes = {event.process for event in events}
        if len(events) == len(processes):
            continue
        overlapping = max(start.line for start in starts) < min(stop.line for stop in stops)
        if processes == {""} and len(starts) == len(stops) and overlapping:
            why = "no rank or namespace, so that several processes may have written"
            return undecided("life", run.name, f"{len(starts)} runs, {lines}; {why}")
        found = f"{len(events)} by {len(processes)} processes, {lines}"
        return failed("life", run.name, f"one {name} of each process", found)
    return passed("life", run.name, lines)


def _lines_of(events: Sequence[MllogEvent]) -> str:
    return ", ".join(str(event.line) for event in events[:5])


def _status(run: MllogRun, _: Round | None) -> CheckOutcome:
    if run.status == "success":
        return passed("status", run.name, "success")
    return failed("status", run.name, "success", run.status or "none")


def _interval(run: MllogRun, _: Round | None) -> CheckOutcome:
    minutes = run.minutes
    if minutes is None:
        return undecided("interval", run.name, "run_start or run_stop is missing")
    if minutes <= 0:
        return failed("interval", run.name, "run_stop after run_start", f"{60_000 * minutes:.0f} ms")
    stops = _first(run, "init_stop")
    if stops is not None and stops.time_ms > run.starts[0].time_ms:
        late = stops.time_ms - run.starts[0].time_ms
        return failed("interval", run.name, "init_stop before run_start", f"{late:.0f} ms after it")
    return passed("interval", run.name, f"{minutes:.3f} minutes")


def _init(run: MllogRun, mlperf_round: Round | None) -> CheckOutcome:
    start, stop = _first(run, "init_start"), _first(run, "init_stop")
    if start is None or stop is None:
        return undecided("init", run.name, "init_start or init_stop is missing")
    took, most = (stop.time_ms - start.time_ms) / 60_000, init_limit_minutes(mlperf_round, run.division)
    if not 0 <= took <= most:
        return failed("init", run.name, f"0 to {most} minutes", f"{took:.2f} minutes")
    return passed("init", run.name, f"{took:.2f} of at most {most} minutes")


def _order(run: MllogRun, _: Round | None) -> CheckOutcome:
    """The timed events of each process; headers may be logged late, and unnamed ranks interleave."""
    by_process: dict[str, list[MllogEvent]] = {}
    for event in run.log.events:
        if event.key.startswith(_TIMED):
            by_process.setdefault(event.process, []).append(event)
    for process, events in sorted(by_process.items()):
        for before, after in pairwise(events):
            if after.time_ms < before.time_ms:
                backwards_ms = before.time_ms - after.time_ms
                found = f"line {after.line} is {backwards_ms:.0f} ms before line {before.line}"
                if not process:
                    why = "no rank or namespace, so that several processes may have written"
                    return undecided("order", run.name, f"{found}; {why}")
                return failed("order", run.name, f"times of {process} in order", found)
    return passed("order", run.name, f"{len(by_process)} processes")


def _history(run: MllogRun, _: Round | None) -> CheckOutcome:
    at = [evaluation.at for evaluation in run.evaluations]
    if not at or any(one is None for one in at):
        return undecided(
            "history", run.name, "an evaluation has no epoch and no sample count" if at else "no evaluation"
        )
    by_metric: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for one in run.evaluations:  # in order of time; equal values that several ranks log are one evaluation
        process_and_metric = one.event.process, shown(one.event.metadata.get("metric"))
        by_metric.setdefault(process_and_metric, []).append((one.at or 0.0, shown(one.value)))
    for logged in by_metric.values():
        values = [value for value, _ in groupby(logged)]
        for (before, _value), (after, _other) in pairwise(values):
            if after < before:
                return failed("history", run.name, f"an evaluation at {before:g} or later", f"{after:g}")
        if len(values) > 1 and len({progress for progress, _ in values}) == 1:
            return failed(
                "history", run.name, "evaluations at different progress", f"{len(values)} at {at[0]:g}"
            )
    return passed("history", run.name, f"{len(set(at))} evaluations")


def _quality(run: MllogRun, mlperf_round: Round | None) -> CheckOutcome:
    last = run.last_evaluation()
    if run.benchmark is None:
        return undecided("quality", run.name, "the log names no benchmark, or several")
    bound = target_for(run.benchmark, mlperf_round)
    if bound is None:
        why = f"the target of {run.benchmark} in this round is unknown; name the round with --round"
        return undecided("quality", run.name, why)
    if last is None:
        return failed("quality", run.name, str(bound), "no evaluation")
    found = f"{shown(last.value)} in line {last.event.line}"
    if bound.met(normalised(run.benchmark, last.value)):
        return passed("quality", run.name, found)
    return failed("quality", run.name, str(bound), found)


def _settings(run: MllogRun, _: Round | None) -> CheckOutcome:
    checked = 0
    for event in run.log.events:
        key = later_key(event)
        if key in _SIZES and not isinstance(event.value, dict):
            size = number(event.value)
            checked += 1
            if size is None or size < 1 or size != int(size):
                found = f"{shown(event.value)} in line {event.line}"
                return failed("settings", run.name, f"{key}, a positive whole number", found)
        if key == "cache_clear" and event.value is False:
            return failed("settings", run.name, "cache_clear true", f"false in line {event.line}")
    if not checked:
        return undecided("settings", run.name, "the log contains no size")
    return passed("settings", run.name, f"{checked} sizes")


def _first(run: MllogRun, key: str) -> MllogEvent | None:
    return next((event for event in run.log.events if event.key == key), None)


_CHECKS: tuple[Callable[[MllogRun, Round | None], CheckOutcome], ...] = (
    _lines, _types, _submission, _life, _status, _interval, _init, _order, _history, _quality, _settings,
)  # fmt: skip
