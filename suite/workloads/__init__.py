"""The workloads: one folder each, found by looking, so that adding one touches nothing else."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from suite.workloads.contract import Data, Job, Specification

_HERE = Path(__file__).parent


@cache
def names() -> tuple[str, ...]:
    """The workloads that exist: folders with a ``spec.py``; one starting with ``_`` is internal."""
    return tuple(sorted(path.parent.name for path in _HERE.glob("[a-z]*/spec.py")))


@cache
def frameworks(workload: str) -> tuple[str, ...]:
    """The frameworks in which ``workload`` exists as a pair."""
    fixed = {"__init__", "spec", "data"}
    known = {path.stem for path in (_HERE.parent / "frameworks").glob("[a-z]*.py")}
    return tuple(sorted(p.stem for p in (_HERE / workload).glob("*.py") if p.stem in known - fixed))


def specification(name: str) -> Specification:
    """The specification of workload ``name``; ValueError if there is none (never imports other names)."""
    if name not in names():
        raise ValueError(f"workload: expected one of {', '.join(names())}, found {name!r}")
    return cast("Specification", import_module(f"suite.workloads.{name}.spec"))


def open_data(job: Job) -> Data:
    """The batches of ``job`` (container side: needs numpy)."""
    module = import_module(f"suite.workloads.{job.key.workload}.data")
    return cast("Data", module.open_data(job))


def pair_module(job: Job) -> ModuleType:
    """The module with the ``Pair`` of ``job`` (container side: imports its framework)."""
    return import_module(f"suite.workloads.{job.key.workload}.{job.key.framework}")


def framework_module(job: Job) -> Any:
    """The module with the ``Framework`` of ``job`` (container side)."""
    return import_module(f"suite.frameworks.{job.key.framework}")
