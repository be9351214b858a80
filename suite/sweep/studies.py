"""The sweeps of ``conf/sweep/``: a grid in YAML, and for a published study its figures in CSV.

A file has ``cells``, a list of entries whose values span a grid each, and may have ``settings`` of every
cell, ``study``, ``source``, ``note`` and ``findings``. An entry with ``skip`` is a part of a study that the
suite cannot run, with the reason. ``published/<name>.csv`` beside the file has the study's figures, which are
shown beside the results.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from suite.containers.engines.native import PROJECT
from suite.contract.traits import framework_names
from suite.plan.errors import BadConfiguration, did_you_mean
from suite.sweep.cells import PHASES, Cell
from suite.sweep.grid import grid_cells, refuse_too_many

SWEEPS = PROJECT / "conf" / "sweep"
_FIELDS = {"study", "source", "note", "findings", "settings", "cells"}
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]*")
_DEFAULTS = {"phase": "train", "precision": "fp32", "devices": "1", "nodes": "1"}


@dataclass(frozen=True, slots=True)
class Published:
    """A figure that a study published: units per second on ``platform``, for cells with these options."""

    platform: str
    options: Mapping[str, str]
    value: float
    unit: str

    def describes(self, cell: Cell) -> bool:
        """Whether ``cell`` has these options; the defaults of a run stand for options that it leaves out."""
        return all(
            (cell.value(name) or _DEFAULTS.get(name)) == wanted for name, wanted in self.options.items()
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """A file of ``conf/sweep``."""

    name: str
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
    entries = [
        _axes(f"{path.name}, cells[{number}]", {**(tree.get("settings") or {}), **entry})
        for number, entry in enumerate(tree["cells"] or ())
    ]
    refuse_too_many(sum(prod(map(len, axes.values())) for axes, _ in entries))
    cells = (Cell(cell.options, skip) for axes, skip in entries for cell in grid_cells(axes))
    source = tree.get("source") or []
    return Sweep(
        path.stem,
        str(tree.get("study") or path.stem),
        tuple(map(str, source if isinstance(source, list) else [source])),
        str(tree.get("note") or ""),
        tuple(map(str, tree.get("findings") or ())),
        tuple(dict.fromkeys(cells)),
        tuple(_published(path.parent / "published" / f"{path.stem}.csv")),
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


def _published(path: Path) -> Iterator[Published]:
    """The rows of a CSV (platform, value, unit, options), at reference scale; none without the file."""
    if not path.is_file():
        return
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                platform, value, unit = row.pop("platform"), float(row.pop("value")), row.pop("unit")
            except (KeyError, ValueError, TypeError) as error:
                raise BadConfiguration(
                    f"{path.name}, line {number}: expected platform, value (a number) and unit, found {row}"
                ) from error
            options = {name: text for name, text in row.items() if text}
            yield Published(platform, {"scale": "reference", **options}, value, unit)


def _load(path: Path) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return OmegaConf.to_container(OmegaConf.load(path))
    except (YAMLError, OmegaConfBaseException, OSError) as error:
        raise BadConfiguration(f"{path.name}: expected YAML, found {str(error).splitlines()[0]}") from error
