"""Examine a result folder or one log. Runs in the sandbox, so that it returns JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.mllog.check_folder import benchmark_of, check_folder
from suite.mllog.check_run import check_run
from suite.mllog.events import number
from suite.mllog.layout import (
    LayoutError,
    LogFiles,
    ResultFolder,
    log_files_of,
    read_system_description,
    result_folder_of,
)
from suite.mllog.outcomes import FAILED, CheckOutcome, failed, passed
from suite.mllog.parse import TooManyEvents, parse
from suite.mllog.rounds import Round, parse_round, round_of
from suite.mllog.runs import MllogRun, mllog_run, shown
from suite.mllog.score import mlperf_score, score_outcome

MAX_LOGS = 1000
_CONVERGENCE_CHECKS = ("life", "status", "interval", "quality")  # one fails if a run missed its target


def examine(path: Path, requested_round: str) -> dict[str, Any]:
    """Check the logs in ``path`` under ``requested_round`` ("0.7"; any other text: derive the round).

    The content of the files never raises: a file that cannot be read is an outcome.
    """
    folder = result_folder_of(path if path.is_dir() else path.parent)
    runs, outcomes = _read(log_files_of(path))
    formats = tuple(sorted({name for run in runs for name in run.log.formats}))
    mlperf_round = parse_round(requested_round) or round_of(path.absolute(), formats)
    outcomes_by_run = [list(check_run(run, mlperf_round)) for run in runs]
    outcomes += [outcome for of_run in outcomes_by_run for outcome in of_run]
    value: dict[str, Any] = {
        "path": str(path),
        "round": None if mlperf_round is None else f"{mlperf_round[0]}.{mlperf_round[1]}",
        "forms": list(formats),
        "layout": asdict(folder),
        "benchmark": benchmark_of(runs, folder),
        "logs": [_log_values(run) for run in runs],
        "score": None,
    }
    if path.is_dir():
        outcomes += _folder_outcomes(runs, folder, path, mlperf_round)
        converged = [_converged(of_run) for of_run in outcomes_by_run]
        score = mlperf_score(runs, converged, folder, mlperf_round)
        outcomes.append(score_outcome(score))
        value["score"] = asdict(score)
    return value | {"outcomes": [asdict(outcome) for outcome in outcomes]}


def _read(files: LogFiles) -> tuple[list[MllogRun], list[CheckOutcome]]:
    runs: list[MllogRun] = []
    faults: list[CheckOutcome] = []
    if len(files.logs) > MAX_LOGS:
        faults.append(failed("files", "the folder", f"at most {MAX_LOGS} logs", str(len(files.logs))))
    for name in files.logs[:MAX_LOGS]:
        try:
            data = files.read(name)
            runs.append(mllog_run(name, data, parse(data)))
        except (LayoutError, TooManyEvents) as error:
            faults.append(failed("files", name, "a log", str(error)))
    if files.others:
        found = f"{files.others[0]}, {len(files.others)} in all"
        faults.append(failed("files", "the folder", "only logs", found))
    return runs, faults or [passed("files", "the folder", f"{len(runs)} logs")]


def _folder_outcomes(
    runs: Sequence[MllogRun], folder: ResultFolder, path: Path, mlperf_round: Round | None
) -> list[CheckOutcome]:
    try:
        system, faults = read_system_description(path, folder), []
    except LayoutError as error:
        system, faults = None, [failed("system", "the folder", "a system description", str(error))]
    outcomes = check_folder(runs, folder, system, mlperf_round)
    return [outcome for outcome in outcomes if not (faults and outcome.check == "system")] + faults


def _converged(outcomes: Sequence[CheckOutcome]) -> bool:
    return not any(outcome.outcome == FAILED and outcome.check in _CONVERGENCE_CHECKS for outcome in outcomes)


def _json_value(value: Any) -> Any:
    """A finite number unchanged; anything else, NaN included, as text."""
    return shown(value) if number(value) is None else value


def _log_values(run: MllogRun) -> dict[str, Any]:
    """What the report shows of one log, as JSON values."""
    last = run.last_evaluation()
    return {
        "name": run.name,
        "sha256": run.digest,
        "pace": run.pace,
        "lines": run.log.lines,
        "events": len(run.log.events),
        "malformed": run.log.malformed,
        "malformed_shown": [asdict(one) for one in run.log.shown],
        "benchmark": run.benchmark,
        "status": run.status,
        "minutes": run.minutes,
        "seeds": sorted({seed for _, _, seed in run.seeds})[:20],
        "settings": dict(run.settings),
        "last_evaluation": None if last is None else {"at": last.at, "value": _json_value(last.value)},
    }
