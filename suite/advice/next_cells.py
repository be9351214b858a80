"""Which configurations to measure next: corners, the kink of the model, and those that decide an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from suite.advice.advise import MEASURED, Advisor, Row, Verdict
from suite.advice.cells import Config
from suite.advice.model import Point
from suite.compare.result_row import OOM


def corners(advisor: Advisor, grid: dict[str, tuple[str, ...]]) -> list[Config]:
    """The corners of processors and batch that were not measured, at the fewest devices."""
    configs = advisor.configs(grid)
    return _unmeasured(
        advisor,
        [
            config
            for config in configs
            if config.cpus in _ends(one.cpus for one in configs)
            and config.batch in _ends(one.batch for one in configs)
            and config.devices in _ends(one.devices for one in configs)
        ],
    )


def kinks(advisor: Advisor, grid: dict[str, tuple[str, ...]]) -> list[Config]:
    """The configurations on both sides of the number of processors from which on the device binds."""
    found = []
    configs = advisor.configs(grid)
    for batch, devices in sorted({(config.batch, config.devices) for config in configs}):
        at = advisor.kink(batch, devices)
        some = sorted({config.cpus for config in configs})
        if at is None or not some or not some[0] <= at <= some[-1]:
            continue
        around = {max(one for one in some if one <= at), min(one for one in some if one >= at)}
        found += [
            one for one in configs if one.cpus in around and (one.batch, one.devices) == (batch, devices)
        ]
    return _unmeasured(advisor, found)


def undecided(
    rows: Sequence[tuple[Row, Verdict]],
    small: tuple[Advisor, Row] | None,
    cheap: tuple[Advisor, Row] | None,
    *,
    of_work: bool = False,
) -> list[Row]:
    """Rows that may reach the goal and would be smaller or cheaper than those that surely do.

    Of each size the fastest first. Without a row that surely reaches the goal, the most promising first.
    """
    found = [
        row for row, verdict in rows if verdict.possibly and not verdict.surely and row.source != MEASURED
    ]
    if small is None:
        return sorted(found, key=lambda row: (-(row.per_second or 0.0), *row.size))
    machine = (small[1].config.devices, small[1].config.cpus)
    better = [
        row
        for row in found
        if (row.config.devices, row.config.cpus) < machine
        or (cheap is not None and _may_cost_less(row, cheap[1], of_work=of_work))
    ]
    # The largest of them first: it is the likeliest to reach the goal, and then the next smaller one follows.
    return sorted(better, key=lambda row: (-row.config.devices, -row.config.cpus, -(row.per_second or 0.0)))


def _may_cost_less(row: Row, cheap: Row, *, of_work: bool) -> bool:
    """Whether ``row`` may be cheaper than ``cheap``; without a rate, its price per hour decides."""
    least, known = row.cost(1.0, row.high), cheap.cost(1.0, cheap.low)
    if of_work and least is not None and known is not None:
        return least < known
    return row.price < cheap.price


def _unmeasured(advisor: Advisor, configs: Iterable[Config]) -> list[Config]:
    """Those that were not measured and do not run out of memory by what is known; memory sizes count once."""
    found: dict[Point, Config] = {}
    for config in configs:
        row = advisor.row(config)
        if row.source not in (MEASURED, OOM):
            found.setdefault(advisor.group.point(config), config)
    return list(found.values())


def _ends(values: Iterable[float]) -> tuple[float, float]:
    some = sorted(values)
    return some[0], some[-1]
