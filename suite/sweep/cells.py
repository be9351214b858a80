"""The cells of a matrix: each has the options of one ``python -m suite run``, without path options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from suite import workloads
from suite.containers.engines.native import PROJECT
from suite.contract.traits import framework_names, reference_framework
from suite.plan.errors import BadConfiguration, did_you_mean

EXPERIMENTS = PROJECT / "conf" / "experiment"
PHASES = ("train", "infer")  # a conversion belongs to a dataset and is no cell
_FLAGS = ("workload", "framework", "phase")
_FIELDS = {"study", "source", "note", "settings", "cells"}
_LONGEST = 40  # characters of an option in a title: a nonce has 64
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]*")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: its options as ``name=value``."""

    options: tuple[str, ...]

    def value(self, name: str) -> str | None:
        """The value of the option ``name``; None if the cell does not set it."""
        pairs = (option.partition("=") for option in self.options)
        return next((value for key, _, value in pairs if key == name), None)

    @property
    def title(self) -> str:
        """One line: the values of workload, framework and phase, then the other options."""
        values = [self.value(name) for name in _FLAGS]
        rest = [_shortened(option) for option in self.options if option.partition("=")[0] not in _FLAGS]
        return " ".join([*(value for value in values if value), *rest])


def _shortened(option: str) -> str:
    return option if len(option) <= _LONGEST else f"{option[: _LONGEST // 2]}…{option[-_LONGEST // 4 :]}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A published study as a grid of cells."""

    name: str
    study: str
    sources: tuple[str, ...]
    note: str
    cells: tuple[Cell, ...]


def pair_cells() -> tuple[Cell, ...]:
    """The cells of training and inference of every pair."""
    return tuple(
        Cell((f"workload={workload}", f"framework={framework}", f"phase={phase}"))
        for workload in workloads.names()
        for framework in workloads.frameworks(workload)
        for phase in PHASES
    )


def quality_cells(seeds: int | None = None) -> tuple[Cell, ...]:
    """The cells of quality runs of every pair, from ``seeds`` seeds: each has another nonce.

    None: 3 seeds in the reference framework, 1 in the others. BadConfiguration for less than one.
    """
    if seeds is not None and seeds < 1:
        raise BadConfiguration(f"seeds: expected at least 1, found {seeds}")
    return tuple(
        Cell((f"workload={workload}", f"framework={framework}", "mode=quality", f"nonce={number:064x}"))
        for workload in workloads.names()
        for framework in workloads.frameworks(workload)
        for number in range(1, 1 + (seeds or (3 if framework == reference_framework() else 1)))
    )


def filter_cells(cells: Iterable[Cell], **filters: Sequence[str]) -> tuple[Cell, ...]:
    """The cells whose option ``name`` has a value of the filter ``name``; an empty filter accepts all cells.

    BadConfiguration for a value that no cell has: a misspelt filter must not look like a finished matrix.
    """
    selected = tuple(cells)
    for name, allowed in filters.items():
        known = sorted({value for cell in selected if (value := cell.value(name)) is not None})
        for value in allowed:
            if value not in known:
                hint = did_you_mean(value, known)
                raise BadConfiguration(f"{name}: expected one of {', '.join(known)}, found {value!r}{hint}")
        selected = tuple(cell for cell in selected if not allowed or cell.value(name) in allowed)
    return selected


def with_options(cells: Iterable[Cell], options: Sequence[str]) -> tuple[Cell, ...]:
    """The cells with ``options`` set; ``batch=16,32`` is an axis of the matrix, as in Hydra's sweeps."""
    axes = [_alternatives(option) for option in options]
    names = {axis[0].partition("=")[0] for axis in axes}
    expanded = (
        Cell((*(option for option in cell.options if option.partition("=")[0] not in names), *values))
        for cell in cells
        for values in product(*axes)
    )
    return tuple(dict.fromkeys(expanded))


def _alternatives(option: str) -> list[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(option)
    except HydraException as error:
        raise BadConfiguration(
            f"{option}: expected an option of `suite run` such as batch=256: {error}"
        ) from error
    name = override.get_key_element()
    if name in _FLAGS:
        raise BadConfiguration(f"{option}: expected the flag --{name} {override.value()} in a matrix")
    if not override.is_sweep_override():
        return [option]
    return [f"{name}={value}" for value in override.sweep_string_iterator()]


def experiment_file(name: str) -> Path:
    """The file of the experiment ``name``, a name in ``conf/experiment`` or a path; else BadConfiguration."""
    path = Path(name) if name.endswith(".yaml") else EXPERIMENTS / f"{name}.yaml"
    if not path.is_file():
        known = sorted(found.stem for found in EXPERIMENTS.glob("*.yaml"))
        raise BadConfiguration(
            f"experiment: expected one of {', '.join(known)} or a path to a .yaml file, found {name!r}"
            f"{did_you_mean(name, known)}"
        )
    return path


def is_grid(name: str) -> bool:
    """Whether the experiment ``name`` of ``conf/experiment`` is a matrix, rather than options of one run."""
    path = EXPERIMENTS / f"{name}.yaml"
    tree = _load(path) if path.is_file() else None
    return isinstance(tree, Mapping) and "matrix" in tree


def read_experiment(name: str) -> Experiment:
    """Read the experiment ``name``, a grid under the key ``matrix``; BadConfiguration if it is no matrix."""
    path = experiment_file(name)
    tree = _load(path)
    if not isinstance(tree, Mapping) or set(tree) != {"matrix"}:
        raise BadConfiguration(
            f"{path.name}: expected the single key `matrix`; for the options of a single run use "
            f"`suite run +experiment={path.stem}`"
        )
    grid = tree["matrix"]
    if not isinstance(grid, Mapping) or set(grid) - _FIELDS or not {"study", "source", "cells"} <= set(grid):
        found = sorted(grid) if isinstance(grid, Mapping) else type(grid).__name__
        raise BadConfiguration(
            f"{path.name}: expected study, source and cells, optionally note and settings, found {found}"
        )
    source = grid["source"]
    cells = tuple(
        dict.fromkeys(
            cell
            for number, entry in enumerate(grid["cells"] or ())
            for cell in _expand(f"{path.name}, cells[{number}]", {**(grid.get("settings") or {}), **entry})
        )
    )
    return Experiment(
        path.stem,
        str(grid["study"]),
        tuple(map(str, source)) if isinstance(source, list) else (str(source),),
        str(grid.get("note") or ""),
        cells,
    )


def _expand(where: str, entry: Mapping[str, Any]) -> Iterable[Cell]:
    """The cells of one entry: every combination of its values."""
    if "workload" not in entry:
        raise BadConfiguration(f"{where}: expected a workload, found {sorted(entry)}")
    axes = {"workload": None, "framework": list(framework_names()), "phase": list(PHASES), **entry}
    lists = {name: value if isinstance(value, list) else [value] for name, value in axes.items()}
    for values in product(*lists.values()):
        yield Cell(tuple(f"{name}={_text(value)}" for name, value in zip(lists, values, strict=True)))


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
