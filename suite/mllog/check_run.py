"""The checks of one log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

from suite.mllog.events import TYPES, V05, V07, MllogEvent, number
from suite.mllog.outcomes import CheckOutcome, error, information, passed, warning
from suite.mllog.rounds import (
    CONSTANT_PROGRESS,
    FIRST_EXACT,
    FIXED_LENGTH,
    FREE_TARGET_IN_OPEN,
    STATUSES,
    Round,
    init_limit_minutes,
    target_for,
)
from suite.mllog.runs import SUBMISSION, TIMED, Evaluation, MllogRun, later_key, shown

_SIZES = ("global_batch_size", "train_samples", "eval_samples", "gradient_accumulation_steps")
_ALLOWED_VALUES = {"submission_division": ("closed", "open"), "submission_status": STATUSES}
_TRAINING = ("epoch_start", "block_start", "train_epoch")  # keys of events that only training logs
_CLOCKS = 0.01  # of a run: how far the clocks of its processes may differ


def check_run(run: MllogRun, mlperf_round: Round | None) -> Iterator[CheckOutcome]:
    """One outcome for each check of one log."""
    for check in _CHECKS:
        yield check(run, mlperf_round)


def _lines(run: MllogRun, _: Round | None) -> CheckOutcome:
    log = run.log
    if not log.events and not log.malformed:
        return error(
            "lines", run.name, "lines with :::MLPv0.5.0, :::MLL or :::MLLOG", f"none in {log.lines} lines"
        )
    if log.malformed:
        first = log.shown[0]
        found = f"{log.malformed}, the first in line {first.line}: {first.why}: {first.text}"
        # MLCommons reads the end of a line, from its last token on, and rejects a log where that is no event.
        severity = error if log.unreadable and log.formats[-1:] in ((), (V07,)) else warning
        return severity("lines", run.name, "no malformed line", found)
    return passed("lines", run.name, f"{len(log.events)} events in {log.lines} lines")


def _types(run: MllogRun, _: Round | None) -> CheckOutcome:
    events = [event for event in run.log.events if event.format == V07]
    if not events:
        return information("types", run.name, "the format has no event types")
    unknown = [event for event in events if event.event_type not in (*TYPES, None)]
    if unknown:
        found = f"{unknown[0].event_type} in line {unknown[0].line}, {len(unknown)} in all"
        return warning("types", run.name, " or ".join(TYPES), found)
    return passed("types", run.name, f"{len(events)} events")


def _submission(run: MllogRun, _: Round | None) -> CheckOutcome:
    if run.log.formats == (V05,):
        return information("submission", run.name, "v0.5 states it in submission.json and entry.json")
    empty = ""
    for key in SUBMISSION:
        values = run.submission_values[key]
        if len(values) != 1:
            return error("submission", run.name, f"one {key}", ", ".join(values) or "none")
        if key in _ALLOWED_VALUES and values[0] not in _ALLOWED_VALUES[key]:
            return error("submission", run.name, f"{key} {' or '.join(_ALLOWED_VALUES[key])}", values[0])
        if not values[0].strip() or values[0] == "null":
            empty = empty or key
    if empty:
        return warning("submission", run.name, f"a value of {empty}", "an empty one")
    return passed("submission", run.name, ", ".join(run.submission_values[key][0] for key in SUBMISSION))


def _life(run: MllogRun, _: Round | None) -> CheckOutcome:
    """Each rank may log start and stop; ranks that cannot be told apart must all start before one stops."""
    starts, stops = run.starts, run.stops
    if not starts or not stops:
        missing = "run_stop" if starts else "run_start"
        return error("life", run.name, f"one {missing} of each process", "none")
    lines = f"lines {_lines_of(starts)} to {_lines_of(stops)}"
    for name, events in (("run_start", starts), ("run_stop", stops)):
        processes = {event.process for event in events}
        if len(events) == len(processes):
            continue
        overlapping = max(start.line for start in starts) < min(stop.line for stop in stops)
        if processes == {""} and len(starts) == len(stops) and overlapping:
            why = "no rank or namespace, so that several processes may have written"
            return information("life", run.name, f"{len(starts)} runs, {lines}; {why}")
        found = f"{len(events)} by {len(processes)} processes, {lines}"
        return error("life", run.name, f"one {name} of each process", found)
    return passed("life", run.name, lines)


def _lines_of(events: Sequence[MllogEvent]) -> str:
    return ", ".join(str(event.line) for event in events[:5])


def _status(run: MllogRun, mlperf_round: Round | None) -> CheckOutcome:
    if run.status is not None and run.status.casefold() == "success":
        return passed("status", run.name, "success")
    early = mlperf_round is not None and mlperf_round < FIRST_EXACT
    if run.status is None and run.stops and early:
        return information("status", run.name, "run_stop has no status; the evaluations decide")
    return error("status", run.name, "success", run.status or "none")


def _interval(run: MllogRun, _: Round | None) -> CheckOutcome:
    minutes = run.minutes
    if minutes is None:
        return information("interval", run.name, "run_start or run_stop is missing")
    if minutes <= 0:
        return error("interval", run.name, "run_stop after run_start", f"{60_000 * minutes:.0f} ms")
    starts = [start for start in run.starts if start.line <= run.stops[0].line] or list(run.starts)
    spread = max(start.time_ms for start in starts) - min(start.time_ms for start in starts)
    if spread > _CLOCKS * minutes * 60_000:
        found = f"{spread:.0f} ms between the first and the last of {len(starts)}"
        return warning("interval", run.name, "all processes start the run at one time", found)
    for process in sorted({start.process for start in run.starts}):
        stop, start = (_times(run, key, process) for key in ("init_stop", "run_start"))
        late = [at - begun for at, begun in zip(stop, start, strict=False) if at > begun]
        if late:
            found = f"{late[0]:.0f} ms after it"
            return warning("interval", run.name, "init_stop before run_start of the same process", found)
    return passed("interval", run.name, f"{minutes:.3f} minutes")


def _times(run: MllogRun, key: str, process: str) -> list[float]:
    """The times of a key in one process; sorted, because unnamed processes share one name."""
    return sorted(event.time_ms for event in run.log.events if event.key == key and event.process == process)


def _init(run: MllogRun, mlperf_round: Round | None) -> CheckOutcome:
    """MLCommons measures every init_stop from the earliest init_start."""
    starts, stops = (
        [e.time_ms for e in run.log.events if e.key == key] for key in ("init_start", "init_stop")
    )
    if not starts or not stops:
        missing = "init_stop" if starts else "init_start"
        if run.log.formats == (V05,):
            return information("init", run.name, f"v0.5 has no {missing}")
        return error("init", run.name, "init_start and init_stop", f"no {missing}")
    took, most = (max(stops) - min(starts)) / 60_000, init_limit_minutes(mlperf_round, run.division)
    if took >= most:
        return error("init", run.name, f"less than {most} minutes", f"{took:.2f} minutes")
    if took < 0:
        return warning("init", run.name, "init_stop after init_start", f"{took:.2f} minutes")
    return passed("init", run.name, f"{took:.2f} of at most {most} minutes")


def _order(run: MllogRun, _: Round | None) -> CheckOutcome:
    """The timed events of each process; headers may be logged late, and unnamed ranks interleave."""
    by_process: dict[str, list[MllogEvent]] = {}
    for event in run.log.events:
        if event.key.startswith(TIMED):
            by_process.setdefault(event.process, []).append(event)
    for process, events in sorted(by_process.items()):
        for before, after in pairwise(events):
            if after.time_ms < before.time_ms:
                backwards_ms = before.time_ms - after.time_ms
                found = f"line {after.line} is {backwards_ms:.0f} ms before line {before.line}"
                if not process:
                    why = "no rank or namespace, so that several processes may have written"
                    return information("order", run.name, f"{found}; {why}")
                return warning("order", run.name, f"times of {process} in order", found)
    return passed("order", run.name, f"{len(by_process)} processes")


def _history(run: MllogRun, _: Round | None) -> CheckOutcome:
    at = [evaluation.at for evaluation in run.evaluations]
    if not at or any(one is None for one in at):
        return information(
            "history", run.name, "an evaluation has no epoch and no sample count" if at else "no evaluation"
        )
    by_process: dict[str, list[tuple[float, str]]] = {}
    for one in run.evaluations:  # in order of time; equal values that several ranks log are one evaluation
        by_process.setdefault(one.event.process, []).append((one.at or 0.0, shown(one.value)))
    for logged in by_process.values():
        values = [value for value, _ in groupby(logged)]
        for (before, _value), (after, _other) in pairwise(values):
            if after < before:
                return warning("history", run.name, f"an evaluation at {before:g} or later", f"{after:g}")
        constant = len(values) > 1 and len({progress for progress, _ in values}) == 1
        if constant and run.benchmark not in CONSTANT_PROGRESS:
            return warning(
                "history", run.name, "evaluations at different progress", f"{len(values)} at {at[0]:g}"
            )
    return passed("history", run.name, f"{len(set(at))} evaluations")


def first_that_meets(run: MllogRun, mlperf_round: Round | None) -> Evaluation | None:
    """The first evaluation that meets the target of the round; None without one, or without a target."""
    bound = target_for(run.benchmark or "", mlperf_round, run.batch)
    if bound is None:
        return None
    met = (one for one in run.evaluations if bound.met(one.value, run.benchmark or "", mlperf_round))
    return next(met, None)


def _quality(run: MllogRun, mlperf_round: Round | None) -> CheckOutcome:
    """As in the rules of the round: at least one evaluation meets the target."""
    if run.benchmark is None:
        return information("quality", run.name, "the log names no benchmark, or several")
    bound = target_for(run.benchmark, mlperf_round, run.batch)
    if bound is None:
        why = f"the target of {run.benchmark} in this round is unknown; name the round with --round"
        return information("quality", run.name, why)
    if not run.evaluations:
        return error("quality", run.name, str(bound), "no evaluation")
    last, first = run.evaluations[-1], first_that_meets(run, mlperf_round)
    found = f"{shown(last.value)} in line {last.event.line}"
    if first is None:
        if run.division == "open" and mlperf_round is not None and mlperf_round >= FREE_TARGET_IN_OPEN:
            why = f"{found}; closed requires {bound}, open has no target since v1.0"
            return information("quality", run.name, why)
        return error("quality", run.name, str(bound), found)
    if run.benchmark not in FIXED_LENGTH and not bound.met(last.value, run.benchmark, mlperf_round):
        met = f"{shown(first.value)} in line {first.event.line} met it, but the last one is {found}"
        return warning("quality", run.name, f"{bound} in the last evaluation", met)
    return passed("quality", run.name, f"{shown(first.value)} in line {first.event.line}")


def _within_run(run: MllogRun, mlperf_round: Round | None) -> CheckOutcome:
    """Training follows run_start; run_stop follows the evaluation that meets the target.

    Except where all evaluations are made offline, after the run; then training must end before run_stop.
    Asynchronous training may go on after the target is met.
    """
    meets = first_that_meets(run, mlperf_round)
    first = meets or (run.evaluations[-1] if run.evaluations else None)
    minutes = run.minutes
    if first is None or minutes is None:
        return information("within run", run.name, "no evaluation, no run_start or no run_stop")
    stop_ms = run.stops[0].time_ms
    start_ms = stop_ms - minutes * 60_000
    training = [event for event in run.log.events if event.key in _TRAINING]
    begun = min(training, key=lambda event: event.time_ms, default=first.event)
    slack_ms = _CLOCKS * max(0.0, stop_ms - min(start_ms, begun.time_ms))
    if (early_ms := start_ms - begun.time_ms) > slack_ms:
        found = f"line {begun.line}, {early_ms / 1000:.3f} s before run_start"
        return error("within run", run.name, "run_start before training", found)
    late_ms = first.event.time_ms - stop_ms
    if late_ms <= 0:
        return passed("within run", run.name, f"line {first.event.line} before run_stop")
    found = f"line {first.event.line}, {late_ms / 1000:.3f} s after run_stop"
    offline = all(one.event.time_ms > stop_ms for one in run.evaluations) and not any(
        event.time_ms > stop_ms + slack_ms for event in training
    )
    if offline and run.benchmark in FIXED_LENGTH:
        return information("within run", run.name, f"evaluated offline: {found}")
    proven = meets is not None and not offline and late_ms > slack_ms
    severity = error if proven else warning
    return severity("within run", run.name, "run_stop after the evaluation that meets the target", found)


def _settings(run: MllogRun, mlperf_round: Round | None) -> CheckOutcome:
    checked = 0
    for event in run.log.events:
        key = later_key(event)
        if key in _SIZES and not isinstance(event.value, dict):
            size = number(event.value)
            checked += 1
            if size is None or size < 1 or size != int(size):
                found = f"{shown(event.value)} in line {event.line}"
                return warning("settings", run.name, f"{key}, a positive whole number", found)
        if key == "cache_clear" and event.value is False:
            severity = error if mlperf_round is not None and mlperf_round < FIRST_EXACT else warning
            return severity("settings", run.name, "cache_clear true", f"false in line {event.line}")
    if not checked:
        return information("settings", run.name, "the log contains no size")
    return passed("settings", run.name, f"{checked} sizes")


_CHECKS: tuple[Callable[[MllogRun, Round | None], CheckOutcome], ...] = (
    _lines, _types, _submission, _life, _status, _interval, _init, _quality, _within_run, _order,
    _history, _settings,
)  # fmt: skip
