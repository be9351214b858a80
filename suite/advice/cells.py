"""Checked results as cells: one configuration with its measured step time, or with the memory it lacked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from suite.advice.model import Point
from suite.checker.sandboxed import limit_finding
from suite.compare.result_row import OOM, ResultRow, result_folders
from suite.contract import INDEPENDENT
from suite.log.processors import processors_in
from suite.log.safe import safe
from suite.sandbox.sandbox import LimitsError, Sandbox, TaskError

TASKS = "suite.advice.tasks"
SCORED = ("accepted", "flagged")
# What separates groups: of the key, of the settings, and the machine. Cells of a group differ in processors,
# memory, batch, devices and page cache alone.
_OF_KEY = ("workload", "variant", "framework", "phase", "scenario", "precision", "scale", "nodes")
_OF_SETTINGS = ("loader", "storage")


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration; ``cpus`` and ``memory_bytes`` are those of a node, which its devices share.

    ``cpus`` is the number of processors that the ranks may use, ``batch`` is per device, ``cache`` the page
    cache: warm or cold.
    """

    cpus: float
    batch: int
    devices: int = 1
    memory_bytes: int | None = None
    cache: str = "warm"


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured configuration; ``step_s`` and all that follows are None where it ran out of memory."""

    config: Config
    step_s: float | None
    low_per_s: float | None = None  # of the measured throughput; None without an interval
    high_per_s: float | None = None
    units_per_step: float | None = None
    device_memory_bytes: int | None = None
    host_memory_bytes: int | None = None
    input_wait_percent: float | None = None
    joules_per_unit: float | None = None
    no_energy: str = ""
    energy_from: str = ""  # what was counted, and over what time
    run_ids: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()  # SHA-256 of each

    @property
    def per_second(self) -> float | None:
        """The measured throughput in units per second."""
        return (
            None if self.step_s is None or self.units_per_step is None else self.units_per_step / self.step_s
        )


@dataclass(frozen=True, slots=True)
class Group:
    """The cells that one model is fitted to. ``key`` names what they share, by the names of the options."""

    key: dict[str, Any]
    unit: str
    device: str
    processor: bool  # whether the device is the processor
    cells: tuple[Cell, ...]
    capacity_bytes: int | None = None  # of one device's memory
    epoch_units: int | None = None
    host: dict[str, Any] = field(default_factory=dict)  # the processor's name, and the runtime of the workers

    @property
    def nodes(self) -> int:
        """Machines of a run."""
        return int(self.key.get("nodes") or 1)

    def point(self, config: Config) -> Point:
        """What the step time of a configuration depends on."""
        devices = max(1, config.devices // self.nodes)
        return Point(config.cpus, config.batch, devices, config.cache, self.loader)

    @property
    def loader(self) -> str:
        """The loader of all cells; empty where nothing is loaded."""
        return str(self.key.get("loader") or "")

    @property
    def host_works(self) -> bool:
        """Whether processors work on each sample: synthetic data are neither read nor decoded."""
        return self.processor or self.key["data"] != "synthetic"

    @property
    def alike(self) -> tuple[Any, ...]:
        """What is equal in groups that share a model: all but the loader."""
        key = {name: value for name, value in self.key.items() if name != "loader"}
        return (key, self.device, self.processor, self.host)

    @property
    def question(self) -> tuple[Any, ...]:
        """What must be equal for one goal to apply: framework, loader, storage and device are a choice."""
        choice = ("framework", "loader", "storage", "strategy")
        return tuple(value for name, value in self.key.items() if name not in choice)


def read_groups(paths: Iterable[Path], **filters: Sequence[str]) -> tuple[list[Group], list[str]]:
    """(groups of the checked results under ``paths``, a sentence for each result that could not be used).

    ``filters`` are values by the name of a part of the key; an empty one excludes nothing.
    """
    found: list[tuple[ResultRow, dict[str, Any] | None]] = []
    failed: list[str] = []
    with Sandbox(TASKS) as sandbox:
        for folder in result_folders(paths):
            try:
                value = sandbox.run("advice_result", path=folder)
            except TaskError as error:
                failed.append(safe(f"{folder.name}: no verdict: {error}", 300))
                continue
            except LimitsError as error:
                failed.append(safe(f"{folder.name}: {limit_finding(error).found}", 300))
                continue
            found.append((ResultRow.of_dict(value["row"]), value["facts"]))
    groups, unused = groups_of(found, **filters)
    return groups, failed + unused


def groups_of(
    results: Iterable[tuple[ResultRow, dict[str, Any] | None]], **filters: Sequence[str]
) -> tuple[list[Group], list[str]]:
    """As :func:`read_groups`, of checked results: each is a row with the facts of its cell."""
    found: list[tuple[dict[str, Any], Cell, ResultRow, dict[str, Any]]] = []
    unused: list[str] = []
    known: set[str] = set()
    for row, facts in results:
        if row.digest in known:
            continue
        known.add(row.digest)
        if not row.key:
            unused.append(safe(f"{row.run_id}: {row.status}: {row.why}", 300))
            continue
        if facts is None:  # a conversion
            continue
        key = row.key | {"data": row.group[1]}
        if any(values and str(key.get(name)) not in values for name, values in filters.items()):
            continue
        if row.group[2] != "throughput":  # it trained to a target
            continue
        if row.status not in (*SCORED, OOM):
            unused.append(safe(f"{row.run_id}: {row.status}: {row.why}", 300))
            continue
        cell = cell_of(row, facts)
        if cell is not None:
            found.append((_group_key(row), cell, row, facts))
    return _grouped(found), unused


def cell_of(row: ResultRow, facts: dict[str, Any]) -> Cell | None:
    """The cell of a result; None for ranks that train without exchange, which no user of N devices does."""
    key, metrics = row.key, row.metrics
    if key["phase"] == "train" and key["devices"] > 1 and key["strategy"] == INDEPENDENT:
        return None
    config = Config(
        cpus=processors(row),
        batch=int(key["batch_per_device"]),
        devices=int(key["devices"]),
        memory_bytes=_whole(row.limits.get("memory_bytes")) or _whole(row.machine.get("memory.total_bytes")),
        cache=str(key["cache"]),
    )
    if row.status == OOM:
        return Cell(config, None, run_ids=(row.run_id,), logs=(row.digest,))

    def value(name: str) -> Any:
        return metrics[name].value if name in metrics else None

    step_ms, per_second = value("step_mean_ms"), value("throughput_per_s")
    if step_ms is None or per_second is None:
        return None
    return Cell(
        config,
        step_s=step_ms / 1e3,
        low_per_s=value("throughput_low_per_s"),
        high_per_s=value("throughput_high_per_s"),
        units_per_step=per_second * step_ms / 1e3,
        device_memory_bytes=value("peak_device_memory_bytes"),
        host_memory_bytes=value("peak_host_memory_bytes"),
        input_wait_percent=value("input_wait_percent"),
        joules_per_unit=facts["joules_per_unit"],
        no_energy=facts["no_energy"],
        energy_from=facts["energy_from"],
        run_ids=(row.run_id,),
        logs=(row.digest,),
    )


def processors(row: ResultRow) -> float:
    """The processors that the ranks of a node may use: the limit, at most the threads of all its ranks.

    A native run has no limit but may have an affinity (``runtime.cpuset``), which counts as one.
    """
    cpus = row.limits.get("cpus")
    machine = _whole(row.machine.get("cpu.threads"))
    allowed = [float(machine)] if machine else []
    with suppress(ValueError):
        allowed += [float(cpus)] if cpus else []
    for cpuset in filter(None, (row.limits.get("cpuset"), row.limits.get("affinity"))):
        listed = processors_in(cpuset)
        allowed.append(float(len(listed)) if listed else 1.0)
    threads = row.settings.get("threads")
    if type(threads) is int and threads > 0:
        per_node = max(1, int(row.key["devices"]) // max(1, int(row.key.get("nodes") or 1)))
        allowed.append(float(threads * per_node))
    return min((one for one in allowed if math.isfinite(one) and one > 0), default=1.0)


def _group_key(row: ResultRow) -> dict[str, Any]:
    key = {name: row.key.get(name) for name in _OF_KEY}
    key["data"] = row.group[1]
    key |= {name: row.settings.get(name) for name in _OF_SETTINGS}
    key["strategy"] = row.key["strategy"] if row.key["devices"] > 1 and row.key["phase"] == "train" else None
    return key


def _grouped(found: Sequence[tuple[dict[str, Any], Cell, ResultRow, dict[str, Any]]]) -> list[Group]:
    """The groups, in a fixed order. One device exchanges nothing: its cells belong to every strategy."""
    strategies: dict[str, set[Any]] = {}
    for key, _, row, _ in found:
        strategies.setdefault(_text(key | {"strategy": None}, row), set()).add(key["strategy"])
    groups: dict[str, Group] = {}
    for key, cell, row, facts in found:
        alone = key["strategy"] is None
        all_of = strategies[_text(key | {"strategy": None}, row)]
        for strategy in (all_of - {None} or {None}) if alone else {key["strategy"]}:
            name = _text(key | {"strategy": strategy}, row)
            group = groups.get(name) or Group(
                key | {"strategy": strategy},
                row.unit,
                row.device,
                row.settings.get("device") == "cpu",
                (),
                epoch_units=facts["epoch_units"],
                host={"cpu": row.machine.get("cpu.model"), "runtime": row.runtime},
            )
            capacity = facts["device_capacity_bytes"] or group.capacity_bytes
            groups[name] = replace(group, cells=(*group.cells, cell), capacity_bytes=capacity)
    merged = [replace(group, cells=merge(group.cells)) for group in groups.values()]
    return sorted(merged, key=lambda group: repr(sorted((k, str(v)) for k, v in group.key.items())))


def _text(key: dict[str, Any], row: ResultRow) -> str:
    return repr(
        (sorted((name, str(value)) for name, value in key.items()), row.device, row.machine.get("cpu.model"))
    )


def merge(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """One cell per configuration: several runs of one are averaged, and count once in the fit."""
    by_config: dict[Config, list[Cell]] = {}
    for cell in cells:
        by_config.setdefault(cell.config, []).append(cell)
    found = []
    for config, some in by_config.items():
        timed = [cell for cell in some if cell.step_s is not None]
        if len(timed) < 2 or len(timed) < len(some):
            # A configuration that ran out of memory once is not advised.
            found.append(next((cell for cell in some if cell.step_s is None), some[0]))
            continue
        found.append(_mean(config, timed))
    order = lambda cell: (cell.config.cache, cell.config.cpus, cell.config.devices, cell.config.batch)  # noqa: E731
    return tuple(sorted(found, key=order))


def _mean(config: Config, cells: Sequence[Cell]) -> Cell:
    """The mean of several runs; its interval is the mean of theirs, and contains each run's throughput.

    A run of one repeat has no interval: that of the others counts.
    """
    energies = [cell.joules_per_unit for cell in cells if cell.joules_per_unit is not None]
    waits = [cell.input_wait_percent for cell in cells if cell.input_wait_percent is not None]
    lows = [cell.low_per_s for cell in cells if cell.low_per_s is not None]
    highs = [cell.high_per_s for cell in cells if cell.high_per_s is not None]
    rates = [rate for cell in cells if (rate := cell.per_second) is not None]
    peaks = {
        name: max((peak for cell in cells if (peak := getattr(cell, name)) is not None), default=None)
        for name in ("device_memory_bytes", "host_memory_bytes")
    }
    return Cell(
        config,
        step_s=geometric_mean([cell.step_s for cell in cells if cell.step_s is not None]),
        low_per_s=min(geometric_mean(lows), *rates) if lows else None,
        high_per_s=max(geometric_mean(highs), *rates) if highs else None,
        units_per_step=fmean([cell.units_per_step for cell in cells if cell.units_per_step is not None]),
        input_wait_percent=fmean(waits) if waits else None,
        joules_per_unit=fmean(energies) if energies else None,
        no_energy="" if energies else cells[0].no_energy,
        energy_from=next((cell.energy_from for cell in cells if cell.joules_per_unit is not None), ""),
        run_ids=tuple(run for cell in cells for run in cell.run_ids),
        logs=tuple(log for cell in cells for log in cell.logs),
        **peaks,
    )


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
