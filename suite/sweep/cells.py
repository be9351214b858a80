"""The cells of a matrix: each is the words of one ``python -m suite run``, places apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from suite import workloads
from suite.containers.engines.native import PROJECT
from suite.contract.traits import reference_framework
from suite.plan.errors import BadConfiguration, did_you_mean

EXPERIMENTS = PROJECT / "conf" / "experiment"
PHASES = ("train", "infer")  # of a workload; a conversion is of a dataset, and no cell of its own accord
_FIRST = ("workload", "framework", "phase")
_FIELDS = {"study", "source", "note", "settings", "cells"}
_LONGEST = 40  # characters of a word in a title: a nonce has 64
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]*")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run, as a user would ask for it."""

    words: tuple[str, ...]

    def value(self, name: str) -> str | None:
        """What the cell says of the word ``name``; None where it says nothing."""
        return next((word.partition("=")[2] for word in self.words if word.partition("=")[0] == name), None)

    @property
    def title(self) -> str:
        """The cell in words: names of workload, framework and phase bare, the rest as given."""
        first = [self.value(name) for name in _FIRST]
        rest = [_short(word) for word in self.words if word.partition("=")[0] not in _FIRST]
        return " ".join([*(word for word in first if word), *rest])


def _short(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST // 2]}…{word[-_LONGEST // 4 :]}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A published study as a grid of cells."""

    name: str
    study: str
    sources: tuple[str, ...]
    note: str
    cells: tuple[Cell, ...]


def every_pair() -> tuple[Cell, ...]:
    """Every workload in every framework that it has a pair for, training and inference."""
    return tuple(
        Cell((f"workload={workload}", f"framework={framework}", f"phase={phase}"))
        for workload in workloads.names()
        for framework in workloads.frameworks(workload)
        for phase in PHASES
    )


def to_target(seeds: int | None = None) -> tuple[Cell, ...]:
    """Every pair trained to the target of its rules, from ``seeds`` seeds.

    Without ``seeds``: 3 in the reference framework, else 1.

    The nonce is what makes seeds differ: a cell of another number is another configuration.
    """
    if seeds is not None and seeds < 1:
        raise BadConfiguration(f"seeds: expected at least 1, found {seeds}")
    return tuple(
        Cell((f"workload={workload}", f"framework={framework}", "mode=quality", f"nonce={number:064x}"))
        for workload in workloads.names()
        for framework in workloads.frameworks(workload)
        for number in range(1, 1 + (seeds or (3 if framework == reference_framework() else 1)))
    )


def frameworks() -> tuple[str, ...]:
    """The frameworks that this version knows."""
    return tuple(sorted(path.stem for path in (PROJECT / "conf" / "framework").glob("*.yaml")))


def chosen(cells: Iterable[Cell], **filters: Sequence[str]) -> tuple[Cell, ...]:
    """The cells whose word has one of the values given for it; an empty filter lets all pass.

    BadConfiguration for a value that no cell has: a misspelt filter must not look like a finished matrix.
    """
    kept = tuple(cells)
    for name, allowed in filters.items():
        known = sorted({value for cell in kept if (value := cell.value(name)) is not None})
        for value in allowed:
            if value not in known:
                hint = did_you_mean(value, known)
                raise BadConfiguration(f"{name}: expected one of {', '.join(known)}, found {value!r}{hint}")
        kept = tuple(cell for cell in kept if not allowed or cell.value(name) in allowed)
    return kept


def with_words(cells: Iterable[Cell], words: Sequence[str]) -> tuple[Cell, ...]:
    """The cells with these words in place of their own; ``batch=16,32`` is an axis, as in Hydra's sweeps."""
    axes = [_alternatives(word) for word in words]
    names = {axis[0].partition("=")[0] for axis in axes}
    made = (
        Cell((*(word for word in cell.words if word.partition("=")[0] not in names), *more))
        for cell in cells
        for more in product(*axes)
    )
    return tuple(dict.fromkeys(made))


def _alternatives(word: str) -> list[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException as error:
        raise BadConfiguration(
            f"{word}: expected an option of `suite run` such as batch=256: {error}"
        ) from error
    name = override.get_key_element()
    if name in _FIRST:
        raise BadConfiguration(f"{word}: a matrix takes it as a flag, --{name} {override.value()}")
    if not override.is_sweep_override():
        return [word]
    return [f"{name}={value}" for value in override.sweep_string_iterator()]


def experiment_file(name: str) -> Path:
    """The file of an experiment: a name in ``conf/experiment``, or a path; else BadConfiguration."""
    path = Path(name) if name.endswith(".yaml") else EXPERIMENTS / f"{name}.yaml"
    if not path.is_file():
        known = sorted(found.stem for found in EXPERIMENTS.glob("*.yaml"))
        raise BadConfiguration(
            f"experiment: expected one of {', '.join(known)} or a path to a .yaml file, found {name!r}"
            f"{did_you_mean(name, known)}"
        )
    return path


def is_grid(name: str) -> bool:
    """Whether the experiment ``name`` of ``conf/experiment`` is a matrix and not the settings of one run."""
    path = EXPERIMENTS / f"{name}.yaml"
    tree = _load(path) if path.is_file() else None
    return isinstance(tree, Mapping) and "matrix" in tree


def read_experiment(name: str) -> Experiment:
    """The experiment ``name``, a grid under the key ``matrix``; BadConfiguration where it is none."""
    path = experiment_file(name)
    tree = _load(path)
    if not isinstance(tree, Mapping) or set(tree) != {"matrix"}:
        raise BadConfiguration(
            f"{path.name}: expected the one key `matrix`; settings of a single run go with "
            f"`suite run +experiment={path.stem}`"
        )
    grid = tree["matrix"]
    if not isinstance(grid, Mapping) or set(grid) - _FIELDS or not {"study", "source", "cells"} <= set(grid):
        found = sorted(grid) if isinstance(grid, Mapping) else type(grid).__name__
        raise BadConfiguration(
            f"{path.name}: expected study, source and cells, perhaps note and settings, found {found}"
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
    """Every combination of the values of one entry."""
    if "workload" not in entry:
        raise BadConfiguration(f"{where}: expected a workload, found {sorted(entry)}")
    axes = {"workload": None, "framework": list(frameworks()), "phase": list(PHASES), **entry}
    lists = {name: value if isinstance(value, list) else [value] for name, value in axes.items()}
    for values in product(*lists.values()):
        yield Cell(tuple(f"{name}={_text(value)}" for name, value in zip(lists, values, strict=True)))


def _text(value: object) -> str:
    """A value of the file as Hydra reads it on a command line."""
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
