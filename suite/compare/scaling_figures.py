"""The figures of a scaling set: all follow from the checked logs of its runs.

Repeat r of every arm of a group ran in the same round, so that the ratios of a round are paired: drift of the
machine between rounds cancels. The figures of a group use its own single device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suite.compare.ratio import Ratio, paired
from suite.compare.scaling_set import INDEPENDENT, SINGLE, SYNCHRONOUS, ScalingSet
from suite.log.statistics import median
from suite.log.units import quantity
from suite.metrics.metric import Metric, missing

ArmData = Mapping[str, Any]  # of :func:`suite.compare.scaling_arm.scaling_arm`


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The figures of one number N of devices; X is throughput, all ratios are of paired repeats.

    ``shares`` is X / (N X(1)) of each arm on several devices; that of the last arm is the scaling efficiency.
    ``contention`` is 1 - X_independent / (N X(1)), ``synchronisation`` 1 - X_synchronous / X_independent
    (None in inference). ``slowest`` is of the independent arm, whose ranks do not wait for each other.
    """

    devices: int
    arms: Mapping[str, ArmData]
    shares: Mapping[str, Ratio]
    contention: Ratio
    synchronisation: Ratio | None
    slowest: Metric

    @property
    def efficiency(self) -> Ratio:
        """The scaling efficiency with its 95 % interval."""
        return self.shares.get(SYNCHRONOUS, self.shares[INDEPENDENT])

    @property
    def bandwidth(self) -> Metric:
        """The highest bus bandwidth of the sweep of the synchronous arm, in bytes per second."""
        rows = self.arms[SYNCHRONOUS]["sweep"] if SYNCHRONOUS in self.arms else []
        known = [row for row in rows if row["bus_bytes_per_s"] is not None]
        if not known:
            return missing(rows[0]["reason"] if rows else "inference exchanges nothing")
        best = max(known, key=lambda row: row["bus_bytes_per_s"])
        return Metric(best["bus_bytes_per_s"], "bytes/s", note=f"at {quantity(best['bytes'], 'bytes')}")


def figures_of(found: ScalingSet, devices: int, arms: Mapping[str, ArmData]) -> GroupFigures:
    """The figures of a group with all its arms."""
    times = {name: _times(arms[name]) for name in found.arms}
    together = [time / devices for time in times[SINGLE]]
    shares = {name: paired(times[name], together) for name in found.arms if name != SINGLE}
    synchronisation = None
    if SYNCHRONOUS in times:
        synchronisation = _loss(paired(times[SYNCHRONOUS], times[INDEPENDENT]))
    slowest = _slowest(arms[INDEPENDENT]["ranks"])
    arms = {name: arms[name] for name in found.arms}  # in the order of a table
    return GroupFigures(devices, arms, shares, _loss(shares[INDEPENDENT]), synchronisation, slowest)


def _times(arm: ArmData) -> list[float]:
    """Nanoseconds per unit of work of each repeat."""
    return [repeat["window_ns"] / repeat["units"] for repeat in arm["repeats"]]


def _loss(kept: Ratio) -> Ratio:
    """1 less a ratio, with its interval."""
    return Ratio(1 - kept.value, 1 - kept.high, 1 - kept.low, kept.freedom, kept.detectable)


def _slowest(windows: Sequence[Sequence[int]]) -> Metric:
    """How much longer the window of the slowest rank is than that of the fastest, by medians over repeats."""
    medians = [median(column) for column in zip(*windows, strict=True)]
    if len(medians) < 2 or min(medians) <= 0:
        return missing("fewer than two ranks have a window")
    rank = medians.index(max(medians))
    return Metric(100 * (medians[rank] / min(medians) - 1), "%", note=f"rank {rank}")
