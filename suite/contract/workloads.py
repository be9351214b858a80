"""The names of all workloads, and their specifications. Standard library only."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast

from suite.contract.protocols import Specification

_FOLDER = Path(__file__).parents[1] / "workloads"


@cache
def names() -> tuple[str, ...]:
    """The names of all workloads: folders with a ``spec.py`` that do not start with ``_``."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("[a-z]*/spec.py")))


def specification(name: str) -> Specification:
    """The specification of workload ``name``; ValueError if there is none (never imports other names).

    It is the module ``spec``, or that module's ``SPEC`` where a family of workloads fills in the functions.
    """
    if name not in names():
        raise ValueError(f"workload: expected one of {', '.join(names())}, found {name!r}")
    module = import_module(f"suite.workloads.{name}.spec")
    return cast("Specification", vars(module).get("SPEC", module))
