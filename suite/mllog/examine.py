"""Examining a folder of logs, or one log: run in the sandbox, so that it returns JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.mllog.check_folder import benchmark_of, check_folder
from suite.mllog.check_run import check_run
from suite.mllog.events import number
from suite.mllog.outcomes import FAILED, CheckOutcome, failed, passed
from suite.mllog.parse import TooManyEventsError, parse
from suite.mllog.places import LogFiles, Place, PlaceError, description, files_of, place_of
from suite.mllog.rounds import Round, parse_round, round_of
from suite.mllog.runs import PublishedRun, run_of, shown
from suite.mllog.score import outcome_of, score_of

MAX_LOGS = 1000
_CONVERGED = ("life", "status", "interval", "quality")  # what fails where a run did not reach its target


def examine(path: Path, asked: str) -> dict[str, Any]:
    """What can be verified of the logs in ``path``; ``asked`` is a round ("0.7"), or a word that is none.

    Never an exception over what the files hold: what cannot be read is an outcome.
    """
    files, place = files_of(path), place_of(path if path.is_dir() else path.parent)
    whole = path.is_dir()
    runs, outcomes = _read(files)
    forms = tuple(sorted({form for run in runs for form in run.log.forms}))
    known = parse_round(asked) or round_of(path.absolute(), forms)
    of_runs = [list(check_run(run, known)) for run in runs]
    outcomes += [outcome for found in of_runs for outcome in found]
    value: dict[str, Any] = {
        "path": str(path),
        "round": None if known is None else f"{known[0]}.{known[1]}",
        "forms": list(forms),
        "place": asdict(place),
        "benchmark": benchmark_of(runs, place),
        "logs": [_told(run) for run in runs],
        "score": None,
    }
    if whole:
        outcomes += _of_folder(runs, place, path, known)
        converged = [not _broken(found) for found in of_runs]
        score = score_of(runs, converged, place, known)
        outcomes.append(outcome_of(score))
        value["score"] = asdict(score)
    return value | {"outcomes": [asdict(outcome) for outcome in outcomes]}


def _read(files: LogFiles) -> tuple[list[PublishedRun], list[CheckOutcome]]:
    runs: list[PublishedRun] = []
    faults: list[CheckOutcome] = []
    if len(files.logs) > MAX_LOGS:
        faults.append(failed("files", "the folder", f"at most {MAX_LOGS} logs", str(len(files.logs))))
    for name in files.logs[:MAX_LOGS]:
        try:
            data = files.read(name)
            runs.append(run_of(name, data, parse(data)))
        except (PlaceError, TooManyEventsError) as error:
            faults.append(failed("files", name, "a log", str(error)))
    if files.others:
        told = f"{files.others[0]}, {len(files.others)} in all"
        faults.append(failed("files", "the folder", "nothing beside the logs", told))
    return runs, faults or [passed("files", "the folder", f"{len(runs)} logs")]


def _of_folder(
    runs: Sequence[PublishedRun], place: Place, folder: Path, known: Round | None
) -> list[CheckOutcome]:
    try:
        system, faults = description(folder, place), []
    except PlaceError as error:
        system, faults = None, [failed("system", "the folder", "a system description", str(error))]
    found = list(check_folder(runs, place, system, known))
    return [outcome for outcome in found if not (faults and outcome.check == "system")] + faults


def _broken(outcomes: Sequence[CheckOutcome]) -> bool:
    return any(outcome.outcome == FAILED and outcome.check in _CONVERGED for outcome in outcomes)


def _plain(value: Any) -> Any:
    """A number as it is; anything else, NaN included, as text."""
    return shown(value) if number(value) is None else value


def _told(run: PublishedRun) -> dict[str, Any]:
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
        "last_evaluation": None if last is None else {"at": last.at, "value": _plain(last.value)},
    }
