"""The plan of a matrix or a sweep: which cells are done or impossible, which run and for how long."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from suite import workloads
from suite.compare.result_row import row_of
from suite.containers.engines import choice as engines
from suite.contract import Key
from suite.contract.traits import framework_names
from suite.log.processors import compact_list
from suite.log.units import count
from suite.metrics.image import conditions_text, counts_text
from suite.plan.compose import composer
from suite.plan.custom import custom_code
from suite.plan.errors import BadConfiguration, Refusal, Unsupported
from suite.plan.machine import Machine, detect_machine
from suite.plan.options import MAX
from suite.plan.plan import Plan
from suite.plan.resolve import requested_key, resolve
from suite.plan.settings import Settings
from suite.report.grid import FAILED, NOT_AVAILABLE, NOT_RUN, GridEntry, entry_of
from suite.sweep import journal
from suite.sweep.cells import Cell
from suite.sweep.estimate import guessed_seconds
from suite.sweep.results import FinishedResult, configuration, finished_results

_ALIKE = ("workload", "framework", "mode", "scale", "telemetry")
_DISK = "disk="  # the axis that names folders of datasets
_DEFAULTS = {  # of options that a cell without a plan does not set
    "phase": "train",
    "scenario": "offline",
    "precision": "fp32",
    "devices": "1",
    "nodes": "1",
    "cache": "warm",
    "mode": "throughput",
}


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell with its entry in the table; ``entry.status`` is ``NOT_RUN`` if the cell has to be run."""

    cell: Cell
    entry: GridEntry
    seconds: float | None = None  # duration of the newest run of the same settings; None without one
    exit_code: int | None = None  # of a refusal while planning
    options: tuple[str, ...] = ()  # of `suite run`, path options included
    guess: float | None = None  # seconds, where no earlier run is known; None where nothing is

    @property
    def to_run(self) -> bool:
        """Whether the cell has to be run."""
        return self.entry.status == NOT_RUN


def plan_cells(
    cells: Iterable[Cell],
    results: Path,
    path_options: Sequence[str],
    code: str,
    machine: Machine | None = None,
    disks: Mapping[str, Path] | None = None,
) -> tuple[PlannedCell, ...]:
    """Plan each cell for ``machine`` (None: this one), with the accepted results in ``results``.

    ``code`` is the digest of the current code: only results of the same code count. ``disks`` are the folders
    of datasets that the axis ``disk`` names.
    """
    machine = machine or detect_machine()
    known = finished_results(results)
    lines = journal.read(results)
    measured_on = {line.run_id: _disk(line.options) for line in lines if line.run_id}
    took = {
        kind: [line.seconds for line in lines if line.seconds and _kind(line.options) == kind]
        for kind in {_kind(line.options) for line in lines if line.seconds}
    }
    find = cache(engines.find)
    planned = []
    with composer() as compose:
        for cell in cells:
            disk = _disk(cell.options)
            same_disk = [one for one in known if measured_on.get(one.folder.name, "") == disk]
            one = _plan_cell(cell, same_disk, path_options, code, machine, find, compose, disks or {})
            alike = took.get(_kind(cell.options))
            planned.append(replace(one, guess=median(alike)) if alike and one.to_run else one)
    return tuple(planned)


def refuse_invalid(planned: Iterable[PlannedCell], axes: Iterable[str]) -> None:
    """BadConfiguration for a value of ``axes`` that is refused in every cell: a typing error in an option.

    Without this each cell would end as an error, beside those that run for hours.
    """
    names = tuple(axes)
    wrong: dict[tuple[str, str | None], str] = {}
    valid: set[tuple[str, str | None]] = set()
    for one in planned:
        if one.entry.status == NOT_AVAILABLE and one.exit_code is None:
            continue  # its options were not read
        about = one.entry.why.partition(":")[0]  # the option, or the section that the option is in
        for name in names:
            value = (name, one.cell.value(name))
            if one.exit_code != BadConfiguration.code:
                valid.add(value)
            elif f"{name}.".startswith(f"{about}."):
                wrong.setdefault(value, one.entry.why)
    for value, why in wrong.items():
        if value not in valid:
            raise BadConfiguration(why)


def _kind(options: Iterable[str]) -> tuple[str, ...]:
    """The options by which runs take about as long as each other, for a guess."""
    return tuple(sorted(one for one in options if one.partition("=")[0] in _ALIKE))


def _disk(options: Iterable[str]) -> str:
    """The value of the axis ``disk`` in the options of a cell; empty without it. No log has this name."""
    return next((one.removeprefix(_DISK) for one in options if one.startswith(_DISK)), "")


def _run_options(cell: Cell, path_options: Sequence[str], disks: Mapping[str, Path]) -> tuple[str, ...]:
    """The options of ``suite run`` for ``cell``; Unsupported for a disk without a folder."""
    disk = _disk(cell.options)
    if not disk:
        return (*cell.options, *path_options)
    if disk not in disks:
        raise Unsupported(unknown_disk(disk, disks))
    others = [one for one in path_options if not one.startswith("data_root=")]
    named = [one for one in cell.options if not one.startswith(_DISK)]
    return (*named, *others, quoted_path("data_root", disks[disk]))


def unknown_disk(disk: str, disks: Mapping[str, Path]) -> str:
    """Why the axis ``disk`` cannot have this value."""
    given = f"those of the file are {', '.join(disks)}" if disks else "no file was given"
    return (
        f"disk: expected the name of a folder in the file of DISKS, found {disk} ({given}); write the "
        f'line {disk} = "/folder" and give DISKS=file.toml'
    )


def quoted_path(name: str, path: Path) -> str:
    """The option ``name`` with a path as quoted text for Hydra."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{text}"'


def _plan_cell(
    cell: Cell,
    known: Sequence[FinishedResult],
    path_options: Sequence[str],
    code: str,
    machine: Machine,
    find: Callable[[str, bool], Any],
    compose: Callable[[Sequence[str]], Settings],
    disks: Mapping[str, Path],
) -> PlannedCell:
    if reason := cell.skip or _why_missing(cell):
        return PlannedCell(cell, _entry_without_plan(cell, NOT_AVAILABLE, reason))
    entry = _entry_without_plan(cell, NOT_RUN, "")
    try:
        options = _run_options(cell, path_options, disks)
        settings = compose(options)
        key, division = requested_key(settings, machine)
        entry = _entry(key, division, settings)
        if settings.launcher != "local":
            raise Unsupported(
                f"launcher: expected local, found {settings.launcher}; the cells run on this machine: submit "
                "the whole matrix or sweep as a job of one node"
            )
        if settings.nodes > 1:
            raise Unsupported(f"nodes: the cells run on this machine, found {settings.nodes}")
        plan = resolve(settings, machine, find)
        custom = custom_code(settings, plan.accelerator)
    except Unsupported as error:
        return PlannedCell(cell, replace(entry, status=NOT_AVAILABLE, why=_one_line(error)), None, error.code)
    except Refusal as error:
        return PlannedCell(cell, replace(entry, status=FAILED, why=_one_line(error)), None, error.code)
    entry = replace(_entry(key, plan.division, settings), limits=_conditions(plan))
    expected = configuration(plan, custom)
    affinity = plan.affinity if plan.affinity != compact_list(os.sched_getaffinity(0)) else None
    same = [one for one in known if (one.configuration, one.affinity) == (expected, affinity)]
    return PlannedCell(
        cell,
        _accepted(same, code, plan) or entry,
        next((result.seconds for result in same if result.seconds is not None), None),
        options=options,
        guess=guessed_seconds(plan),
    )


def _why_missing(cell: Cell) -> str:
    """Why this version lacks the workload or the pair of the cell; empty if it has them."""
    workload, framework = cell.value("workload") or "", cell.value("framework") or ""
    if workload not in workloads.names():
        return f"the workload {workload} is not in this version"
    if framework in framework_names() and framework not in workloads.frameworks(workload):
        return f"{workload} has no pair in {framework} in this version"
    return ""


def _accepted(same: Sequence[FinishedResult], code: str, plan: Plan) -> GridEntry | None:
    """The newest result of this code and device that the checker accepts, out of memory included."""
    for result in same:
        if result.code == code:
            entry = entry_of(row_of(result.folder))
            if entry.settled and entry.device == device_name_of(plan):
                return entry
    return None


def device_name_of(plan: Plan) -> str:
    """The name of the device in a result of ``plan``."""
    if plan.gpus:
        names = sorted({gpu.name for gpu in plan.gpus})
        return names[0] if len(names) == 1 else f"mixed: {', '.join(names)}"
    return _processor_name()


@cache
def _processor_name() -> str:
    from suite.telemetry.facts import machine_facts

    facts, _ = machine_facts(())
    return str(facts["cpu"]["model"] or "")


def _entry(key: Key, division: str, settings: Settings) -> GridEntry:
    fields = asdict(key)
    batch, data = fields.pop("batch"), fields.pop("data")
    fields["batch_per_device"] = MAX if settings.batch_max else batch
    return GridEntry((division, key.scale, data, settings.mode), fields, NOT_RUN)


def _entry_without_plan(cell: Cell, status: str, why: str) -> GridEntry:
    """The entry of a cell that has no plan, from its options alone."""

    def option(name: str) -> str:
        return cell.value(name) or _DEFAULTS.get(name, "")

    scale = option("scale")
    division = option("division") or {"mini": "practice", "reference": "open"}.get(scale, "")
    names = ("workload", "framework", "phase", "scenario", "precision", "scale", "cache", "variant")
    key: dict[str, Any] = {name: option(name) for name in names}
    key["batch_per_device"] = _number(option("batch"))
    key |= {name: _number(option(name)) for name in ("devices", "nodes")}
    return GridEntry((division, scale, option("data"), option("mode")), key, status, why)


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _conditions(plan: Plan) -> str:
    """The limits of a plan, its loader and storage format, as text of the tables."""
    limits = {name: getattr(plan.limits, name) for name in ("cpus", "cpuset", "memory_bytes")}
    if plan.affinity is not None:
        limits["affinity"] = plan.affinity
    return conditions_text(limits, plan.settings.loader, plan.settings.storage, _counts(plan))


def _counts(plan: Plan) -> str:
    """Repeats and steps that are given, as text of the tables."""
    if not plan.settings.counts_given:
        return ""
    if (seconds := plan.settings.min_seconds) is not None:
        return f"{count(plan.repeats, 'repeat')} of {seconds} s or more"
    return counts_text(plan.repeats, None if plan.settings.mode == "quality" else plan.measured_steps)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
