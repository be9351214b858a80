"""Check the published logs of a tree, folder by folder in the sandbox, and find copies among all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.mllog.layout import LayoutError, log_folders, result_folder_of
from suite.mllog.outcomes import FAILED, UNDECIDED, failed, passed
from suite.sandbox.sandbox import LimitsError, Sandbox

MLLOG_TASKS = "suite.mllog.tasks"
FORMAT = "suite-mllog-import/1"
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
    for value, copy in zip(values, _duplicate_outcomes(values), strict=True):
        value["outcomes"].append(copy)
    outcomes = [outcome["outcome"] for value in values for outcome in value["outcomes"]]
    return {
        "format": FORMAT,
        "logs": sum(len(value["logs"]) for value in values),
        "failed": outcomes.count(FAILED),
        "undecided": outcomes.count(UNDECIDED),
        "folders": values,
    }


def _examined(sandbox: Sandbox, path: Path, requested_round: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = sandbox.run("examine", path=path, requested_round=requested_round)
    except LimitsError as error:
        outcome = failed("files", path.name, "logs that are examined within the limits", str(error))
        value = {
            "round": None,
            "forms": [],
            "layout": asdict(result_folder_of(path)),
            "benchmark": None,
            "logs": [],
        }
        value |= {"score": None, "outcomes": [asdict(outcome)]}
    return value | {"path": str(path)}


def _duplicate_outcomes(values: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each folder, whether a log copies another one: equal bytes, or equal times between its events."""
    first: dict[tuple[str, str], str] = {}
    for value in values:
        copies = []
        for log in value["logs"]:
            folder = Path(value["path"])
            path = str(folder if folder.name == log["name"] else folder / log["name"])
            kinds = {"sha256": "bytes", "pace": "times between its events"}
            others = [
                (what, first.setdefault((kind, log[kind]), path)) for kind, what in kinds.items() if log[kind]
            ]
            same = [f"the {what} of {other}" for what, other in others if other != path]
            copies += [(log["name"], same[0])] if same else []
        if copies:
            name, found = copies[0]
            also = f", {len(copies)} copies in all" if len(copies) > 1 else ""
            yield asdict(failed("duplicates", name, "a log that differs from all others", found + also))
        else:
            yield asdict(passed("duplicates", "the folder", f"{len(value['logs'])} logs"))
