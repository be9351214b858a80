"""The axes of a grid, such as ``batch=32,64 runtime.cpus=1,2``, and the cells that they span."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from math import prod

from suite.plan.errors import BadConfiguration
from suite.sweep.cells import Cell

MOST_CELLS = 10_000

Axes = Mapping[str, tuple[str, ...]]  # values by option, in the order given


def parse_grid(text: str) -> Axes:
    """The axes in ``text``, which blanks separate; BadConfiguration if it is no grid."""
    try:
        return parse_axes(shlex.split(text))
    except ValueError as error:
        raise BadConfiguration(f"grid: expected closed quotes, found {text!r}") from error


def parse_axes(options: Sequence[str]) -> Axes:
    """The values of each of ``options``: ``batch=16,32`` has two, as in Hydra's sweeps.

    BadConfiguration for text that is no option, an option without a value, and a name or value given twice.
    """
    axes: dict[str, tuple[str, ...]] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not name or not equals:
            raise BadConfiguration(f"grid: expected axes such as batch=32,64, found {option!r}")
        if name in axes:
            raise BadConfiguration(f"{name}: expected one list of values, found two; join them with a comma")
        values = _values(name, option) if text.strip(", ") else []
        if not values:
            raise BadConfiguration(
                f"{name}: expected at least one value, found none; write {name}=VALUE, or leave it out"
            )
        twice = next((value for at, value in enumerate(values) if value in values[:at]), None)
        if twice is not None:
            raise BadConfiguration(f"{name}: expected each value once, found {twice} twice; remove one")
        axes[name] = tuple(values)
    return axes


def _values(name: str, option: str) -> list[str]:
    """The values of one option as text for Hydra, at most one more than a grid may have."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(option)
        if not override.is_sweep_override():
            return [option.partition("=")[2]]
        values = list(islice(override.sweep_string_iterator(), MOST_CELLS + 1))
    except (HydraException, ValueError) as error:
        raise BadConfiguration(
            f"{name}: expected a value or values such as {name}=32,64, found {option[:80]!r}"
        ) from error
    if len(values) > MOST_CELLS:
        raise BadConfiguration(f"{name}: expected at most {MOST_CELLS:,} values, found more")
    return values


def refuse_too_many(count: int) -> None:
    """BadConfiguration for more cells than one command runs."""
    if count > MOST_CELLS:
        raise BadConfiguration(
            f"grid: expected at most {MOST_CELLS:,} cells, found {count:,}; sweep fewer values at a time"
        )


def grid_cells(axes: Axes) -> tuple[Cell, ...]:
    """Every combination of the values of ``axes``, the last axis fastest; BadConfiguration if too many."""
    return with_axes([Cell(())], axes)


def with_axes(cells: Iterable[Cell], axes: Axes) -> tuple[Cell, ...]:
    """The cells with the options of ``axes`` in place of theirs, once for each combination of values."""
    base = tuple(
        dict.fromkeys(
            Cell(tuple(one for one in cell.options if one.partition("=")[0] not in axes), cell.skip)
            for cell in cells
        )
    )
    refuse_too_many(len(base) * prod(map(len, axes.values())))
    sets = [[f"{name}={value}" for value in values] for name, values in axes.items()]
    return tuple(Cell((*cell.options, *chosen), cell.skip) for cell in base for chosen in product(*sets))
