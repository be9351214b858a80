"""Examine a result folder or one log. Runs in the sandbox, so that it returns JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from suite.mllog.check_folder import benchmark_of, check_folder
from suite.mllog.check_run import check_run
from suite.mllog.events import number
from suite.mllog.layout import (
    SCALING,
    LayoutError,
    LogFiles,
    ResultFolder,
    log_files_of,
    read_system_description,
    result_folder_of,
)
from suite.mllog.outcomes import COMPLIANCE, ERROR, WARNING, CheckOutcome, error, passed, warning
from suite.mllog.parse import TooManyEvents, parse
from suite.mllog.rounds import Round, parse_round, round_of
from suite.mllog.runs import MllogRun, mllog_run, shown
from suite.mllog.score import MlperfScore, mlperf_score, score_outcome

MAX_LOGS = 1000


def examine(path: Path, requested_round: str) -> dict[str, Any]:
    """Check the logs in ``path`` under ``requested_round`` ("0.7"; any other text: derive the round).

    The content of the files never raises: a file that cannot be read is an outcome.
    """
    folder = result_folder_of(path if path.is_dir() else path.parent)
    files = log_files_of(path)
    runs, outcomes = _read(files)
    formats = tuple(sorted({name for run in runs for name in run.log.formats}))
    mlperf_round = parse_round(requested_round) or round_of(path.absolute(), formats)
    outcomes_by_run = [list(check_run(run, mlperf_round)) for run in runs]
    converged = [not any(map(_breaks_compliance, of_run)) for of_run in outcomes_by_run]
    score = None
    if path.is_dir():
        factor, faults = _scaling(files)
        score = mlperf_score(runs, converged, folder, mlperf_round, factor)
        outcomes_by_run = [[_tolerated(outcome, score) for outcome in of_run] for of_run in outcomes_by_run]
        outcomes += _folder_outcomes(runs, folder, files, mlperf_round)
        outcomes += faults or [score_outcome(score)]
    outcomes += [outcome for of_run in outcomes_by_run for outcome in of_run]
    return {
        "path": str(path),
        "round": None if mlperf_round is None else f"{mlperf_round[0]}.{mlperf_round[1]}",
        "forms": list(formats),
        "layout": asdict(folder),
        "benchmark": benchmark_of(runs, folder),
        "division": next((run.division for run in runs if run.division), None),
        "logs": [_log_values(run, ok) for run, ok in zip(runs, converged, strict=True)],
        "score": None if score is None else asdict(score),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }


def _read(files: LogFiles) -> tuple[list[MllogRun], list[CheckOutcome]]:
    runs: list[MllogRun] = []
    faults: list[CheckOutcome] = []
    if len(files.logs) > MAX_LOGS:
        faults.append(error("files", "the folder", f"at most {MAX_LOGS} logs", str(len(files.logs))))
    for name in files.logs[:MAX_LOGS]:
        try:
            data = files.read(name)
            runs.append(mllog_run(name, data, parse(data)))
        except (LayoutError, TooManyEvents) as fault:
            faults.append(error("files", name, "a log", str(fault)))
    if files.others:
        found = f"{files.others[0]}, {len(files.others)} in all"
        faults.append(warning("files", "the folder", "only logs and known files", found))
    return runs, faults or [passed("files", "the folder", f"{len(runs)} logs")]


def _scaling(files: LogFiles) -> tuple[float | None, list[CheckOutcome]]:
    try:
        return files.scaling(), []
    except LayoutError as fault:
        return None, [error("score", SCALING, "a factor by which the score is scaled", str(fault))]


def _folder_outcomes(
    runs: Sequence[MllogRun], folder: ResultFolder, files: LogFiles, mlperf_round: Round | None
) -> list[CheckOutcome]:
    system = None
    parameters: tuple[str, ...] = ()
    faults: list[CheckOutcome] = []
    try:
        system = read_system_description(files.folder, folder)
    except LayoutError as fault:
        faults.append(error("system", "the folder", "a system description", str(fault)))
    try:
        parameters = files.parameters()
    except LayoutError as fault:
        faults.append(warning("files", "the folder", "a file of parameters", str(fault)))
    outcomes = check_folder(runs, folder, system, mlperf_round, parameters)
    replaced = {fault.check for fault in faults}
    return [outcome for outcome in outcomes if outcome.check not in replaced] + faults


def _breaks_compliance(outcome: CheckOutcome) -> bool:
    return outcome.outcome == ERROR and outcome.check in COMPLIANCE


def _tolerated(outcome: CheckOutcome, score: MlperfScore) -> CheckOutcome:
    """A warning instead of the error of a run that the olympic mean drops as the slowest."""
    if score.minutes is None or not _breaks_compliance(outcome):
        return outcome
    return replace(outcome, outcome=WARNING, found=f"{outcome.found}; tolerated, this run is not counted")


def _json_value(value: Any) -> Any:
    """A finite number unchanged; anything else, NaN included, as text."""
    return shown(value) if number(value) is None else value


def _log_values(run: MllogRun, converged: bool) -> dict[str, Any]:
    """What the report shows of one log, as JSON values; ``intervals`` is for the search for copies."""
    last = run.evaluations[-1] if run.evaluations else None
    return {
        "name": run.name,
        "sha256": run.digest,
        "pace": run.pace,
        "evaluated": run.evaluated,
        "intervals": run.intervals,
        "lines": run.log.lines,
        "events": len(run.log.events),
        "malformed": run.log.malformed,
        "malformed_shown": [asdict(one) for one in run.log.shown],
        "benchmark": run.benchmark,
        "status": run.status,
        "converged": converged,
        "minutes": run.minutes,
        "seeds": sorted({seed for _, _, seed in run.seeds})[:20],
        "settings": dict(run.settings),
        "last_evaluation": None if last is None else {"at": last.at, "value": _json_value(last.value)},
    }
