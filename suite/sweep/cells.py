"""The cells of a matrix or a sweep: each has the options of one ``suite run``, without path options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from suite import workloads
from suite.compare.journal import differing, values_of
from suite.contract.traits import reference_framework
from suite.plan.errors import BadConfiguration, one_of

PHASES = ("train", "infer")  # a conversion belongs to a dataset and is no cell
_FLAGS = ("workload", "framework", "phase")
_LONGEST = 40  # characters of an option in a title: a nonce has 64


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: its options as ``name=value``. ``skip``: why the suite cannot run it, where that is known."""

    options: tuple[str, ...]
    skip: str = ""

    def value(self, name: str) -> str | None:
        """The value of the option ``name``; None if the cell does not set it."""
        return self.values.get(name)

    @property
    def values(self) -> dict[str, str]:
        """The values of its options by name."""
        return values_of(self.options)

    @property
    def title(self) -> str:
        """One line: the values of workload, framework and phase, then the other options."""
        values = [self.value(name) for name in _FLAGS]
        rest = [_shortened(option) for option in self.options if option.partition("=")[0] not in _FLAGS]
        return " ".join([*(value for value in values if value), *rest])


def _shortened(option: str) -> str:
    return option if len(option) <= _LONGEST else f"{option[: _LONGEST // 2]}…{option[-_LONGEST // 4 :]}"


def axes_of(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The options that differ between the cells, in their order."""
    return differing([cell.values for cell in cells])


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
            one_of(name, value, known)
        selected = tuple(cell for cell in selected if not allowed or cell.value(name) in allowed)
    return selected
