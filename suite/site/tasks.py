"""The sandbox tasks of the site: what its pages show of one result, one baseline, one journal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite.checker.tasks import log_tasks
from suite.compare.tasks import TASKS as COMPARE
from suite.metrics.baseline import Baseline, BaselineProblem, read_log, read_shared
from suite.site.facts import facts_of
from suite.site.sweeps import journal_of
from suite.submissions.tasks import registry_of


def facts(path: str, root: str) -> dict[str, Any]:
    """What the pages show of the result in ``path``; ``root`` is the folder that the site is made from."""
    return facts_of(Path(path), Path(root), registry_of(Path(root)))


def baseline_log(path: str) -> dict[str, Any]:
    """The baseline in the folder of a log, or the problem for which there is none."""
    return _baseline(read_log, path)


def baseline_shared(path: str) -> dict[str, Any]:
    """The baseline in a shared file, or the problem for which there is none."""
    return _baseline(read_shared, path)


def journal(path: str) -> dict[str, Any]:
    """The sweeps in the journal of the folder ``path``."""
    return journal_of(Path(path))


def _baseline(read: Callable[[Path], Baseline], path: str) -> dict[str, Any]:
    try:
        return {"baseline": read(Path(path)).as_dict()}
    except BaselineProblem as problem:
        return {"problem": str(problem)}


TASKS = log_tasks(
    {
        **COMPARE.functions,
        "facts": facts,
        "baseline_log": baseline_log,
        "baseline_shared": baseline_shared,
        "journal": journal,
    }
)
