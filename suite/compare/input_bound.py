"""Which side limits a run on real data: the input pipeline or the model.

Beside the run itself it takes a load (the same batches, without a model) and a run on synthetic batches (the
same model, without reading). The slower of these two is the most that the run can reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suite.compare.result_row import ResultRow
from suite.contract import LOAD, LOAD_PHASES
from suite.log.safe import safe
from suite.log.units import significant

INPUT, MODEL = "input pipeline", "model"
# What decides how fast batches are read, and how fast the model is; the rest of the key and the settings of
# a load have no meaning for the other two.
_EVERYWHERE = ("workload", "variant", "framework", "batch_per_device", "devices", "nodes", "scale")
_OF_READING = ("cache", "loader", "storage")
_OF_MODEL = ("phase", "scenario", "precision", "strategy", "fast")
_OF_MACHINE = ("threads", "cpus", "cpuset", "memory_bytes", "shm_bytes")


@dataclass(frozen=True, slots=True)
class InputBound:
    """The throughputs (``unit`` per second) of a run on real data, of its load and of synthetic batches."""

    run_id: str
    load_run_id: str
    synthetic_run_id: str
    title: str
    unit: str
    real: float
    load: float
    synthetic: float

    @property
    def limit(self) -> float:
        """The most that the run can reach: the slower of its two sides."""
        return min(self.load, self.synthetic)

    @property
    def limited_by(self) -> str:
        """The slower side."""
        return INPUT if self.load < self.synthetic else MODEL

    @property
    def share(self) -> float:
        """The run's share of that limit."""
        return self.real / self.limit

    @property
    def sentence(self) -> str:
        """The three throughputs, and what follows from them."""
        runs = ", ".join(safe(one[-8:]) for one in (self.run_id, self.synthetic_run_id, self.load_run_id))
        real, synthetic, load = map(significant, (self.real, self.synthetic, self.load))
        return (
            f"{self.title}: {real} {self.unit}/s are {100 * self.share:.3g} % of min(synthetic {synthetic}, "
            f"load {load}); the {self.limited_by} is the limit (runs {runs})"
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "limit": self.limit, "limited_by": self.limited_by, "share": self.share}


def input_bounds(rows: Iterable[ResultRow]) -> list[InputBound]:
    """The bound of every scored result on real data that has a load and a synthetic result beside it.

    Of several loads or synthetic results the fastest counts: the limit is what each side can do.
    """
    scored = [row for row in rows if _rate(row)]
    loads = [row for row in scored if row.group[2] == LOAD]
    others = [row for row in scored if row.group[2] == "throughput"]
    return [found for row in others if row.group[1] == "real" for found in _bound(row, loads, others)]


def _bound(row: ResultRow, loads: Sequence[ResultRow], others: Sequence[ResultRow]) -> Iterator[InputBound]:
    read = [
        one
        for one in loads
        if _same(row, one, (*_EVERYWHERE, *_OF_READING, *_OF_MACHINE))
        and LOAD_PHASES[one.key["phase"]] == row.key["phase"]
    ]
    made = [
        one
        for one in others
        if one.group[1] == "synthetic" and _same(row, one, (*_EVERYWHERE, *_OF_MODEL, *_OF_MACHINE))
    ]
    if read and made:
        load, synthetic = max(read, key=_rate), max(made, key=_rate)
        names = ("workload", "variant", "framework", "phase", "precision")
        title = safe(" ".join(str(row.key[name]) for name in names))
        title += f", batch {row.key['batch_per_device']}, loader {safe(_value(row, 'loader'))}"
        rates = (_rate(one) for one in (row, load, synthetic))
        yield InputBound(row.run_id, load.run_id, synthetic.run_id, title, row.unit, *rates)


def _same(row: ResultRow, other: ResultRow, names: Sequence[str]) -> bool:
    """Whether both ran on machines and devices of one kind, and agree in the settings ``names``."""
    kinds = [(one.device, one.machine, one.runtime, one.image.name) for one in (row, other)]
    return kinds[0] == kinds[1] and all(_value(row, name) == _value(other, name) for name in names)


def _value(row: ResultRow, name: str) -> Any:
    for values in (row.key, row.limits, row.settings):
        if name in values:
            return values[name]
    return None


def _rate(row: ResultRow) -> float:
    """The throughput of a result; 0 without a score."""
    metric = row.metrics.get("throughput_per_s")
    return 0.0 if metric is None or metric.value is None else float(metric.value)
