"""The quality that a lower precision loses: the difference to fp32 where both were trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from suite.log.units import count
from suite.metrics.metric import Metric, missing

if TYPE_CHECKING:
    from suite.compare.result_row import ResultRow

NAME = "quality_less_fp32"


def with_precision_loss(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows; quality runs in a precision other than fp32 gain the metric ``quality_less_fp32``.

    It is the final quality minus the mean of all fp32 results of the same benchmark, framework and division.
    Machine, limits and cache may differ: they do not change what is computed.
    """
    exact: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        value = _final(row)
        if value is not None and row.key["precision"] == "fp32":
            exact[_same(row)].append(value)
    return [_compared(row, exact.get(_same(row), [])) for row in rows]


def _final(row: ResultRow) -> float | None:
    """The quality at the end of a run; None in another mode or without a score."""
    quality = row.metrics.get("quality") if row.group[2] == "quality" else None
    return None if quality is None else quality.value


def _same(row: ResultRow) -> tuple[Any, ...]:
    ignored = ("precision", "cache")
    return (*row.group, *(value for name, value in sorted(row.key.items()) if name not in ignored))


def _compared(row: ResultRow, exact: Sequence[float]) -> ResultRow:
    value = _final(row)
    if value is None or row.key["precision"] == "fp32":
        return row
    loss = missing("there is no fp32 result of the same benchmark and framework among these results")
    if exact:
        results = count(len(exact), "fp32 result")
        unit = row.metrics["quality"].unit
        loss = Metric(value - fmean(exact), unit, note=f"less the quality of {results}, {fmean(exact):.6g}")
    return replace(row, metrics={**row.metrics, NAME: loss})
