"""Rows of configurations and machines, measured or predicted, and which of them suffices for a goal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from suite.advice.cells import Cell, Config, Group, merge
from suite.advice.goal import BATCH, CACHE, CPUS, DEVICES, MEMORY, THREADS, Goal, size_of
from suite.advice.memory import Memory
from suite.advice.model import CPUS as BOUND_BY_CPUS
from suite.advice.model import DEVICE, DISK, Point, StepTime, TooFewCells
from suite.advice.prices import Machine, Prices
from suite.compare.result_row import OOM

MEASURED, PREDICTED, EXTRAPOLATED, UNKNOWN = "measured", "predicted", "extrapolated", "unknown"
# Runs that wait for input for at least this share of the time are bound by the host, as in `make matrix`.
HOST_BOUND_PERCENT = 10.0
_FURTHEST = 2.0  # times the largest measured batch or number of devices: no prediction beyond
_WIDER = 2.0  # times the width of an interval outside of the measured range
_MOST_CONFIGS = 4000  # of a product of axes: results of others may have any values
_CLOSE = 0.99  # of a goal: what runs of one configuration may differ by
_USABLE = 0.95  # of a memory that a prediction may fill: allocators lose some to fragments


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration, on a machine of the price file or not.

    ``source``: measured, predicted, extrapolated, OOM or unknown; ``why`` explains the last two. Rates are
    units per second with the bounds of their interval.
    """

    config: Config
    source: str
    machine: Machine | None = None
    per_second: float | None = None
    low: float | None = None
    high: float | None = None
    binds: str = ""
    host_memory_bytes: float | None = None  # measured, or the upper bound
    joules_per_unit: float | None = None
    why: str = ""
    run_ids: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[float, ...]:
        """The order from small to large: devices, processors, memory that is needed or rented."""
        memory = self.config.memory_bytes if self.machine else self.host_memory_bytes
        return (self.config.devices, self.config.cpus, memory or 0.0)

    @property
    def price(self) -> float:
        """The price of the machine per hour; infinite without one."""
        return math.inf if self.machine is None else self.machine.price

    @property
    def sure_rate(self) -> float:
        """What rows are compared by: the lower bound of the rate, without an interval the rate; 0 without."""
        return self.low if self.low is not None else self.per_second or 0.0

    def cost(self, units: float, rate: float | None) -> float | None:
        """The price of ``units`` at ``rate`` units per second."""
        if self.machine is None or not rate:
            return None
        return self.machine.price / 3600 * units / rate


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a row meets a goal: surely (its lower bound), possibly (its upper bound), or not at all.

    ``closely``: possibly, and its rate is at least 99 % of the goal.
    """

    surely: bool
    possibly: bool
    closely: bool = False


class Advisor:
    """The model of one group, and its rows.

    Groups of ``among`` that differ from it in the loader alone share the model.
    """

    def __init__(self, group: Group, among: Iterable[Group] = ()) -> None:
        self.group = group
        self.timed = [cell for cell in group.cells if cell.step_s is not None]
        self.failed = [cell for cell in group.cells if cell.step_s is None]
        self._measured = {cell.config: cell for cell in self.timed}
        # Memory does not change the time of a step: a size that was not measured has the mean of the others.
        of_any_memory = merge(replace(one, config=_without_memory(one.config)) for one in self.timed)
        self._of_any_memory = {cell.config: cell for cell in of_any_memory}
        self.model: StepTime | None = None
        self.no_model = ""
        points: dict[Point, list[float]] = {}
        for one in (group, *(other for other in among if other is not group and other.alike == group.alike)):
            for cell in one.cells:  # cells that differ in memory alone have one time
                if cell.step_s is not None:
                    points.setdefault(one.point(cell.config), []).append(cell.step_s)
        self.points = sorted(points, key=repr)  # one order, so that groups with the same cells have one model
        try:
            if not self.timed:
                raise TooFewCells("no cell has a measured time")
            times = tuple(sum(points[one]) / len(points[one]) for one in self.points)
            self.model = _model(
                tuple(self.points), times, processor=group.processor, host_works=group.host_works
            )
        except TooFewCells as error:
            self.no_model = str(error)

    def _point(self, config: Config) -> Point:
        return self.group.point(config)

    @cached_property
    def units_per_sample(self) -> float:
        """Units of work of one sample of the batch: 1 for images, more for sentences."""
        ratios = [
            (cell.units_per_step or 0) / (cell.config.batch * cell.config.devices) for cell in self.timed
        ]
        return sum(ratios) / len(ratios) if ratios else 1.0

    @cached_property
    def device_memory(self) -> Memory | None:
        """The peak memory of a device over the batch; None where the log does not state it."""
        known = [cell for cell in self.timed if cell.device_memory_bytes]
        return Memory.fitted(
            [cell.config.batch for cell in known], [cell.device_memory_bytes or 0 for cell in known]
        )

    @cached_property
    def host_memory(self) -> Memory | None:
        """The peak memory of the ranks over the global batch."""
        known = [cell for cell in self.timed if cell.host_memory_bytes]
        return Memory.fitted(
            [cell.config.batch * cell.config.devices for cell in known],
            [cell.host_memory_bytes or 0 for cell in known],
        )

    def levels(self, name: str) -> list[float]:
        """The measured values of a part of the configuration, ascending."""
        return sorted({getattr(cell.config, name) for cell in self.group.cells})

    def row(self, config: Config, machine: Machine | None = None) -> Row:
        """The row of one configuration."""
        lacking = self._lacks_memory(config)
        cell = self.measured(config)
        if lacking:
            return Row(config, OOM, machine, why=lacking)
        if cell is not None:
            return self._measured_row(config, cell, machine)
        if self.model is None:
            return Row(config, UNKNOWN, machine, why=self.no_model)
        beyond, why = self._beyond(config)
        if why:
            return Row(config, UNKNOWN, machine, why=why)
        found = self.model.predict([self._point(config)], _WIDER if beyond else 1.0)[0]
        units = self.units_per_sample * config.batch * config.devices
        host = self.host_memory
        return Row(
            config,
            EXTRAPOLATED if beyond else PREDICTED,
            machine,
            units / found.step_s,
            units / found.high_s,
            units / found.low_s,
            found.binds,
            None if host is None else host.upper(config.batch * config.devices),
        )

    def measured(self, config: Config) -> Cell | None:
        """The cell of this configuration, else the mean of those that differ in memory alone; else None."""
        return self._measured.get(config) or self._of_any_memory.get(_without_memory(config))

    def _measured_row(self, config: Config, cell: Cell, machine: Machine | None) -> Row:
        """The measured rate. Of one repeat it has no interval: its bounds are as far off as the model's."""
        rate, low, high = cell.per_second or 0.0, cell.low_per_s, cell.high_per_s
        if self.model is not None and (low is None or high is None):
            model = self.model.predict([self._point(config)])[0]
            low, high = rate * model.step_s / model.high_s, rate * model.step_s / model.low_s
        return Row(
            config, MEASURED, machine, rate, low, high, self._binds(cell),
            cell.host_memory_bytes, cell.joules_per_unit, run_ids=cell.run_ids,
        )  # fmt: skip

    def _binds(self, cell: Cell) -> str:
        """What limits a measured cell: by the telemetry, and which part of the host by the model."""
        if self.group.processor:
            return BOUND_BY_CPUS
        if cell.input_wait_percent is not None and not _host_bound(cell):
            return DEVICE
        found = "" if self.model is None else self.model.predict([self._point(cell.config)])[0].binds
        return found if found in (BOUND_BY_CPUS, DISK) else "input"

    def _lacks_memory(self, config: Config) -> str:
        """Why a configuration runs out of memory; empty if it does not, by all that is known."""
        measured = self.measured(config)
        for cell in self.failed:
            limit, given = cell.config.memory_bytes, config.memory_bytes
            as_little = limit is None or (given is not None and given <= limit)
            if config.batch >= cell.config.batch and as_little and measured is None:
                return f"batch {cell.config.batch} ran out of memory ({cell.run_ids[0]})"
            if config == cell.config:
                return f"ran out of memory ({cell.run_ids[0]})"
        capacity, device = self.group.capacity_bytes, self.device_memory
        if measured is None and capacity and device and device.upper(config.batch) > _USABLE * capacity:
            return "a device needs more memory than it has, by the peaks of smaller batches"
        samples, host = config.batch * config.devices, self.host_memory
        if host and config.memory_bytes:
            known = (
                measured.host_memory_bytes if measured and measured.host_memory_bytes else host.upper(samples)
            )
            if known > _USABLE * config.memory_bytes:
                return "the ranks need more memory than the machine has, by the peaks of the cells"
        return ""

    def _beyond(self, config: Config) -> tuple[bool, str]:
        """(whether a configuration lies outside of the measured range, why it is then not predicted)."""
        cells, point = self.timed, self._point(config)
        if point.cache not in {cell.config.cache for cell in cells}:
            return False, f"no cell was measured with the page cache {point.cache}"
        cpus = [self._point(cell.config).cpus for cell in cells]
        # Of all loaders: the device computes the same with each.
        batches, devices = [one.batch for one in self.points], [one.devices for one in self.points]
        for name, value, measured in (
            ("batch", point.batch, batches),
            ("number of devices", point.devices, devices),
        ):
            if len(set(measured)) == 1 and value != measured[0]:
                return False, f"only one {name} was measured ({measured[0]})"
        if point.cpus < min(cpus):
            return False, f"fewer processors than measured ({min(cpus):g}): the host may bind there"
        if point.batch < min(batches) / _FURTHEST or point.batch > max(batches) * _FURTHEST:
            return False, f"the batch is too far from those measured ({min(batches)} to {max(batches)})"
        if point.devices > max(devices) * _FURTHEST or point.devices < min(devices):
            return False, f"too far from the numbers of devices measured ({min(devices)} to {max(devices)})"
        more_cpus = point.cpus > max(cpus)
        larger = point.batch > max(batches) or point.batch < min(batches) or point.devices > max(devices)
        if not more_cpus and not larger:
            return False, ""
        if self.group.processor and more_cpus:
            return False, f"more processors than measured ({max(cpus):g}): they compute the model"
        nearest = min(
            cells,
            key=lambda cell: (
                abs(self._point(cell.config).devices - point.devices),
                abs(cell.config.batch - point.batch),
                -cell.config.cpus if more_cpus else abs(cell.config.cpus - point.cpus),
            ),
        )
        if _host_bound(nearest) and not self.group.processor:
            wait = nearest.input_wait_percent
            share = "an unknown share" if wait is None else f"{wait:.0f} %"
            return True, (
                f"outside of what was measured, where the host binds (batch {nearest.config.batch}, "
                f"{nearest.config.cpus:g} processors wait {share} of the time for input)"
            )
        return True, ""

    def rows(self, grid: dict[str, tuple[str, ...]], prices: Prices | None) -> list[Row]:
        """Measured cells, the grid (without one: all combinations of measured values), and machines."""
        configs = dict.fromkeys([*(cell.config for cell in self.group.cells), *self.configs(grid)])
        rows = [self.row(config) for config in configs]
        for machine in prices.machines if prices else ():
            rows += [self.row(config, machine) for config in self._on(machine, grid)]
        return rows

    def configs(self, grid: dict[str, tuple[str, ...]]) -> list[Config]:
        """The product of the grid's axes; an axis that it lacks has the measured values.

        A product of more than 4,000 is left out: then these are the measured configurations.
        """
        memories: Sequence[int | None] = sorted({cell.config.memory_bytes or 0 for cell in self.group.cells})
        if MEMORY in grid:
            memories = [size_of(value) for value in grid[MEMORY]]
        axes = (
            self._axis(grid, CPUS if CPUS in grid else THREADS, "cpus"),
            self._axis(grid, BATCH, "batch"),
            self._axis(grid, DEVICES, "devices"),
            memories,
            grid.get(CACHE) or sorted({cell.config.cache for cell in self.group.cells}),
        )
        if math.prod(map(len, axes)) > _MOST_CONFIGS:
            return list(dict.fromkeys(cell.config for cell in self.group.cells))
        # Threads are those of one device; a configuration counts those of the node.
        of_node = THREADS in grid and CPUS not in grid
        found = [
            Config(
                cpus * (max(1, int(devices) // self.group.nodes) if of_node else 1),
                int(batch), int(devices), memory or None, cache,
            )
            for cpus, batch, devices, memory, cache in itertools.product(*axes)
        ]  # fmt: skip
        return found if MEMORY in grid else [config for config in found if self._has_own_memory(config)]

    def _has_own_memory(self, config: Config) -> bool:
        """False where it would repeat the number of a cell that has the same processors and other memory."""
        sizes = {
            one.config.memory_bytes
            for one in self.group.cells
            if (one.config.cpus, one.config.devices) == (config.cpus, config.devices)
        }
        if sizes and config.memory_bytes not in sizes:
            return False
        return config in self._measured or self.measured(config) is None

    def _axis(self, grid: dict[str, tuple[str, ...]], name: str, part: str) -> list[float]:
        return [float(value) for value in grid[name]] if name in grid else self.levels(part)

    def _on(self, machine: Machine, grid: dict[str, tuple[str, ...]]) -> list[Config]:
        """The configurations of a machine: all of its devices and processors, every batch and page cache."""
        group = self.group
        fits = (
            not machine.accelerator
            if group.processor
            else machine.has_device(group.device, group.capacity_bytes)
        )
        if not fits or group.nodes > 1:
            return []
        devices = [machine.devices] if not group.processor else [int(one) for one in self.levels("devices")]
        caches = sorted({cell.config.cache for cell in group.cells})
        return [
            Config(machine.cpus, int(batch), count, machine.memory_bytes, cache)
            for batch, count, cache in itertools.product(self._axis(grid, BATCH, "batch"), devices, caches)
        ]

    def kink(self, batch: int, devices: int) -> float | None:
        """The number of processors from which on the device binds; None where there is none."""
        if self.model is None or self.group.processor:
            return None
        values = self.model.values_of(self.group.loader)
        device = (values["a"] + values.get("b", 0.0) * batch) * values.get("g", 1.0)
        work = values.get("c", 0.0) * batch * devices
        return work / device + values.get("u", 0.0) if device > 0 and work > 0 else None


def _without_memory(config: Config) -> Config:
    return replace(config, memory_bytes=None)


@lru_cache(maxsize=16)
def _model(
    points: tuple[Point, ...], times: tuple[float, ...], *, processor: bool, host_works: bool
) -> StepTime:
    return StepTime(points, times, processor=processor, host_works=host_works)


def _host_bound(cell: Cell) -> bool:
    """Whether the cell waits for input; also where its log does not state that."""
    return cell.input_wait_percent is None or cell.input_wait_percent >= HOST_BOUND_PERCENT


def verdict_of(row: Row, goal: Goal, epoch_units: float | None) -> Verdict:
    """Whether ``row`` meets ``goal``; a row without a rate does not, but one that is unknown may."""
    least = goal.least_rate(epoch_units, row.machine.price if row.machine else None)
    if least is None or row.source == OOM:
        return Verdict(surely=False, possibly=False)
    if row.per_second is None:
        return Verdict(surely=False, possibly=True)
    possibly = (row.high if row.high is not None else row.per_second) >= least
    closely = possibly and row.per_second >= _CLOSE * least
    return Verdict(row.low is not None and row.low >= least, possibly, closely)


def smallest(rows: Sequence[tuple[Advisor, Row]]) -> tuple[Advisor, Row] | None:
    """The row with the fewest devices, then processors, then memory; the fastest of equal ones."""
    return min(rows, key=lambda found: (*found[1].size, -found[1].sure_rate), default=None)


def cheapest(rows: Sequence[tuple[Advisor, Row]], *, of_work: bool = False) -> tuple[Advisor, Row] | None:
    """The machine with the lowest price per hour, or of its work; its fastest configuration.

    ``of_work``: the price of a unit of work at the lower bound of the throughput counts. None without prices.
    """
    priced = [found for found in rows if found[1].machine is not None]

    def order(found: tuple[Advisor, Row]) -> tuple[float, float]:
        row = found[1]
        price = (row.cost(1.0, row.low) or math.inf) if of_work else row.price
        return (price, -row.sure_rate)

    return min(priced, key=order, default=None)


def best_batches(
    rows: Iterable[Row], goal: Goal | None = None, epoch_units: float | None = None
) -> list[Row]:
    """For each machine and configuration apart from the batch, the row with the best lower bound.

    One that reaches ``goal`` comes before all others, so that the rows agree with the answer.
    """
    found: dict[tuple[object, ...], Row] = {}
    ranks: dict[tuple[object, ...], tuple[float, ...]] = {}
    for row in rows:
        verdict = verdict_of(row, goal, epoch_units) if goal else Verdict(surely=False, possibly=False)
        name = (row.machine.name if row.machine else "", replace(row.config, batch=0))
        rank = (row.source != OOM, verdict.surely, verdict.closely, row.sure_rate, row.per_second or 0.0)
        if name not in ranks or rank > ranks[name]:
            found[name], ranks[name] = row, rank
    return list(found.values())
