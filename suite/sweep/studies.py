"""The sweeps of ``conf/sweep/``: a grid in YAML, and for a published study its figures in CSV.

A file has ``cells``, a list of entries whose values span a grid each, and may have ``settings`` of every
cell, ``study``, ``source``, ``note`` and ``findings``. An entry with ``skip`` is a part of a study that the
suite cannot run, with the reason. ``published/<name>.csv`` beside the file has the study's figures, which are
shown beside the results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from suite.compare.published import SWEEPS, MalformedFigures, Published, read_figures
from suite.contract.traits import framework_names
from suite.plan.errors import BadConfiguration, did_you_mean
from suite.sweep.cells import PHASES, Cell
from suite.sweep.grid import grid_cells, refuse_too_many

__all__ = ["SWEEPS", "Sweep", "read_sweep", "sweep_file"]

_FIELDS = {"study", "source", "note", "findings", "settings", "cells"}
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]*")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A file of ``conf/sweep``."""

    name: str  # in conf/sweep; empty for a file elsewhere
    study: str
    sources: tuple[str, ...]
    note: str
    findings: tuple[str, ...]  # what the study concluded, where it has no figure for a cell
    cells: tuple[Cell, ...]
    published: tuple[Published, ...]


def sweep_file(name: str) -> Path:
    """The file of the sweep ``name``, a name in ``conf/sweep`` or a path; else BadConfiguration."""
    path = Path(name) if name.endswith(".yaml") else SWEEPS / f"{name}.yaml"
    if not path.is_file():
        known = sorted(found.stem for found in SWEEPS.glob("*.yaml"))
        raise BadConfiguration(
            f"sweep: expected one of {', '.join(known)} or a path to a .yaml file, found {name!r}"
            f"{did_you_mean(name, known)}"
        )
    return path


def read_sweep(name: str) -> Sweep:
    """The sweep ``name``; BadConfiguration if its file is no grid."""
    path = sweep_file(name)
    tree = _load(path)
    if not isinstance(tree, Mapping) or set(tree) - _FIELDS or "cells" not in tree:
        found = ", ".join(map(str, tree)) if isinstance(tree, Mapping) else type(tree).__name__
        raise BadConfiguration(
            f"{path.name}: expected cells, optionally {', '.join(sorted(_FIELDS - {'cells'}))}, found {found}"
        )
    shared, cells = tree.get("settings") or {}, tree["cells"] or []
    if not isinstance(shared, Mapping):
        raise BadConfiguration(f"{path.name}, settings: expected options, found {type(shared).__name__}")
    if not isinstance(cells, list) or not all(isinstance(entry, Mapping) for entry in cells):
        raise BadConfiguration(f"{path.name}, cells: expected a list of options, such as `- workload: ncf`")
    entries = [
        _axes(f"{path.name}, cells[{number}]", {**shared, **entry}) for number, entry in enumerate(cells)
    ]
    refuse_too_many(sum(prod(map(len, axes.values())) for axes, _ in entries))
    try:
        figures = read_figures(path.parent / "published" / f"{path.stem}.csv")
    except MalformedFigures as error:
        raise BadConfiguration(str(error)) from error
    made = (Cell(cell.options, skip) for axes, skip in entries for cell in grid_cells(axes))
    source = tree.get("source") or []
    return Sweep(
        path.stem if path.parent == SWEEPS else "",
        str(tree.get("study") or path.stem),
        tuple(map(str, source if isinstance(source, list) else [source])),
        str(tree.get("note") or ""),
        tuple(map(str, tree.get("findings") or ())),
        tuple(dict.fromkeys(made)),
        figures,
    )


def _axes(where: str, entry: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], str]:
    """The axes of one entry, and why the suite cannot run its cells."""
    if "workload" not in entry:
        raise BadConfiguration(f"{where}: expected a workload, found {', '.join(entry)}")
    given = {"workload": None, "framework": list(framework_names()), "phase": list(PHASES), **entry}
    skip = str(given.pop("skip", "") or "")
    axes = {}
    for name, value in given.items():
        values = [_text(one) for one in (value if isinstance(value, list) else [value])]
        if not values or len(set(values)) < len(values):
            raise BadConfiguration(
                f"{where}: {name}: expected one or several different values, found {value}"
            )
        axes[name] = tuple(values)
    return axes, skip


def _text(value: object) -> str:
    """A value of the file as text for Hydra's command line."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _PLAIN.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'


def _load(path: Path) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return OmegaConf.to_container(OmegaConf.load(path))
    except (YAMLError, OmegaConfBaseException, OSError) as error:
        raise BadConfiguration(f"{path.name}: expected YAML, found {str(error).splitlines()[0]}") from error
