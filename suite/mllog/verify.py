"""Check the published logs of a tree, folder by folder in the sandbox, and find copies among all of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.mllog.copies import EVALUATIONS, Candidate, find_copies
from suite.mllog.layout import LayoutError, log_folders, result_folder_of
from suite.mllog.outcomes import ERROR, INFORMATION, WARNING, error, passed, warning
from suite.sandbox.sandbox import LimitsError, Sandbox

MLLOG_TASKS = "suite.mllog.tasks"
FORMAT = "suite-mllog-import/2"
ANY_ROUND = "any"


def verify_tree(sandbox: Sandbox, path: Path, requested_round: str = ANY_ROUND) -> dict[str, Any]:
    """Check the logs in ``path``: a log, a result folder, or a tree of them. Returns JSON values.

    ``requested_round`` is a round ("0.7"); without one it follows from names and formats. Raises LayoutError
    where there are no logs or too many files, SandboxError on a fault of the suite itself.
    """
    paths = [path] if path.is_file() else list(log_folders(path))
    if not paths:
        raise LayoutError("expected logs (result_<i>.txt), found none below it")
    values = [_examined(sandbox, one, requested_round) for one in paths]
    _add_duplicates(values, path)
    outcomes = [outcome["outcome"] for value in values for outcome in value["outcomes"]]
    return {
        "format": FORMAT,
        "path": str(path),
        "logs": sum(len(value["logs"]) for value in values),
        "errors": outcomes.count(ERROR),
        "warnings": outcomes.count(WARNING),
        "undecided": outcomes.count(INFORMATION),
        "folders": values,
    }


def _examined(sandbox: Sandbox, path: Path, requested_round: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = sandbox.run("examine", path=path, requested_round=requested_round)
    except LimitsError as fault:
        outcome = error("files", path.name, "logs that are examined within the limits", str(fault))
        value = {
            "round": None,
            "forms": [],
            "layout": asdict(result_folder_of(path)),
            "benchmark": None,
            "division": None,
            "logs": [],
        }
        value |= {"score": None, "outcomes": [asdict(outcome)]}
    return value | {"path": str(path)}


def _add_duplicates(values: list[dict[str, Any]], root: Path) -> None:
    """Add an outcome to each folder, and the number of its copies to its score."""

    def path_of(value: dict[str, Any], log: dict[str, Any]) -> str:
        folder = Path(value["path"])
        path = folder if folder.name == log["name"] else folder / log["name"]
        return str(path.relative_to(root)) if path != root else path.name

    copies = find_copies(
        [[Candidate.of(path_of(value, log), log) for log in value["logs"]] for value in values]
    )
    expected = "a log that differs from all others"
    for value in values:
        mine = [(log["name"], copies.get(path_of(value, log))) for log in value["logs"]]
        found = [(name, what) for name, what in mine if what is not None]
        proven = [one for one in found if not one[1].startswith(EVALUATIONS)]
        if proven or found:
            name, what = (proven or found)[0]
            also = f", {len(proven or found)} copies in all" if len(proven or found) > 1 else ""
            outcome = (error if proven else warning)("duplicates", name, expected, what + also)
        else:
            outcome = passed("duplicates", "the folder", f"{len(mine)} logs")
        value["outcomes"].append(asdict(outcome))
        if value["score"] is not None:
            value["score"]["copies"] = len(proven)
        for log in value["logs"]:
            del log["intervals"]
