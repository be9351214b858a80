"""What a shorter type costs in quality: the difference to fp32, where both were trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from suite.metrics.metric import Metric, missing

if TYPE_CHECKING:
    from suite.compare.result_row import ResultRow

NAME = "quality_less_fp32"


def with_precision_loss(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows, those of quality runs in another precision than fp32 with the figure ``quality_less_fp32``.

    It is the final quality less the mean of all fp32 results of the same benchmark, framework and division.
    Those may be of another machine, limits or cache: none of them changes what is computed.
    """
    exact: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        value = _final(row)
        if value is not None and row.key["precision"] == "fp32":
            exact[_same(row)].append(value)
    return [_compared(row, exact.get(_same(row), [])) for row in rows]


def _final(row: ResultRow) -> float | None:
    """The quality that a row's run ended with; None for another mode or a row without a score."""
    figure = row.metrics.get("quality") if row.group[2] == "quality" else None
    return None if figure is None else figure.value


def _same(row: ResultRow) -> tuple[Any, ...]:
    apart = ("precision", "cache")
    return (*row.group, *(value for name, value in sorted(row.key.items()) if name not in apart))


def _compared(row: ResultRow, exact: Sequence[float]) -> ResultRow:
    value = _final(row)
    if value is None or row.key["precision"] == "fp32":
        return row
    figure = missing("no fp32 result of the same benchmark and framework is among these")
    if exact:
        many = "1 fp32 result" if len(exact) == 1 else f"{len(exact)} fp32 results"
        unit = row.metrics["quality"].unit
        figure = Metric(value - fmean(exact), unit, note=f"less the quality of {many}, {fmean(exact):.6g}")
    return replace(row, metrics={**row.metrics, NAME: figure})
