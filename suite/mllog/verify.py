"""Published logs of a whole tree, folder by folder in the sandbox, and copies among all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.mllog.outcomes import FAILED, UNDECIDED, failed, passed
from suite.mllog.places import PlaceError, folders, place_of
from suite.sandbox.sandbox import LimitsError, Sandbox

MLLOG_TASKS = "suite.mllog.tasks"
FORMAT = "suite-mllog-import/1"
ANY_ROUND = "any"


def verified(sandbox: Sandbox, path: Path, asked: str = ANY_ROUND) -> dict[str, Any]:
    """What can be verified of the logs in ``path``: a log, a result folder, or a tree of them.

    ``asked`` is a round ("0.7"); without one it follows from names and formats. PlaceError where there are no
    logs or no end of them; SandboxError is a fault of the suite itself.
    """
    found = [path] if path.is_file() else list(folders(path))
    if not found:
        raise PlaceError("expected logs (result_<i>.txt), found none below it")
    values = [_examined(sandbox, one, asked) for one in found]
    for value, copy in zip(values, _copies(values), strict=True):
        value["outcomes"].append(copy)
    outcomes = [outcome["outcome"] for value in values for outcome in value["outcomes"]]
    return {
        "format": FORMAT,
        "logs": sum(len(value["logs"]) for value in values),
        "failed": outcomes.count(FAILED),
        "undecided": outcomes.count(UNDECIDED),
        "folders": values,
    }


def _examined(sandbox: Sandbox, path: Path, asked: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = sandbox.run("examine", path=path, asked=asked)
    except LimitsError as error:
        outcome = failed("files", path.name, "logs that are examined within the limits", str(error))
        value = {"round": None, "forms": [], "place": asdict(place_of(path)), "benchmark": None, "logs": []}
        value |= {"score": None, "outcomes": [asdict(outcome)]}
    return value | {"path": str(path)}


def _copies(values: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each folder whether a log is another one again: equal bytes, or equal times between its events."""
    first: dict[tuple[str, str], str] = {}
    for value in values:
        copies = []
        for log in value["logs"]:
            where = (
                value["path"] if Path(value["path"]).name == log["name"] else f"{value['path']}/{log['name']}"
            )
            kinds = {"sha256": "bytes", "pace": "times between its events"}
            others = [
                (what, first.setdefault((kind, log[kind]), where))
                for kind, what in kinds.items()
                if log[kind]
            ]
            same = [f"the {what} of {other}" for what, other in others if other != where]
            copies += [(log["name"], same[0])] if same else []
        if copies:
            name, told = copies[0]
            also = f", {len(copies)} copies in all" if len(copies) > 1 else ""
            yield asdict(failed("duplicates", name, "a log of its own", told + also))
        else:
            yield asdict(passed("duplicates", "the folder", f"{len(value['logs'])} logs"))
