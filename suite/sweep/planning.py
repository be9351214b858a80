"""From cells to a plan of a matrix: what is done already, what cannot be, what is to run and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from suite import workloads
from suite.compare.result_row import row_of
from suite.containers.engines import choice as engines
from suite.contract import Key
from suite.plan.compose import composer
from suite.plan.custom import custom_code
from suite.plan.errors import Refusal, Unsupported
from suite.plan.machine import Machine, detect_machine
from suite.plan.options import MAX
from suite.plan.plan import Plan
from suite.plan.resolve import requested_key, resolve
from suite.plan.settings import Settings
from suite.report.grid import FAILED, NOT_AVAILABLE, NOT_RUN, GridEntry, entry_of
from suite.sweep.cells import Cell, frameworks
from suite.sweep.results import FoundResult, configuration, finished

_UNSTATED = {  # what a word is where a cell leaves it out and nothing tells what `auto` would become
    "phase": "train",
    "scenario": "offline",
    "precision": "fp32",
    "devices": "1",
    "cache": "warm",
    "mode": "throughput",
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One cell with its place in the table. ``entry.status`` says whether there is anything to do."""

    cell: Cell
    entry: GridEntry
    seconds: float | None = None  # what an earlier run of the same settings took; None: there was none
    exit_code: int | None = None  # of a refusal before any process was started

    @property
    def to_run(self) -> bool:
        """Whether a process has to be started for it."""
        return self.entry.status == NOT_RUN


def plan_cells(
    cells: Iterable[Cell], results: Path, places: Sequence[str], code: str, machine: Machine | None = None
) -> tuple[Planned, ...]:
    """Each cell, resolved on ``machine`` (this one) and held against the results there are."""
    machine = machine or detect_machine()
    known = finished(results)
    find = cache(engines.find)
    with composer() as compose:
        return tuple(
            _planned(cell, known, (*cell.words, *places), code, machine, find, compose) for cell in cells
        )


def _planned(
    cell: Cell,
    known: Sequence[FoundResult],
    words: Sequence[str],
    code: str,
    machine: Machine,
    find: Callable[[str, bool], Any],
    compose: Callable[[Sequence[str]], Settings],
) -> Planned:
    if reason := _absent(cell):
        return Planned(cell, _unresolved(cell, NOT_AVAILABLE, reason))
    entry = _unresolved(cell, NOT_RUN, "")
    try:
        settings = compose(words)
        key, division = requested_key(settings, machine)
        entry = _entry(key, division, settings)
        if settings.slurm is not None:
            raise Unsupported(
                "launcher: a matrix runs its cells here; make the matrix itself a job of one node"
            )
        plan = resolve(settings, machine, find)
        custom = custom_code(settings, plan.accelerator)
    except Unsupported as error:
        return Planned(cell, replace(entry, status=NOT_AVAILABLE, why=_one_line(error)), None, error.code)
    except Refusal as error:
        return Planned(cell, replace(entry, status=FAILED, why=_one_line(error)), None, error.code)
    entry = replace(_entry(key, plan.division, settings), limits=limits_words(plan))
    wanted_settings = _plain(configuration(plan, custom))
    same = [found for found in known if found.configuration == wanted_settings]
    return Planned(
        cell,
        _accepted(same, code, plan) or entry,
        next((found.seconds for found in same if found.seconds is not None), None),
    )


def _absent(cell: Cell) -> str:
    """Why there is no such cell in this version; empty where there is one."""
    workload, framework = cell.value("workload") or "", cell.value("framework") or ""
    if workload not in workloads.names():
        return f"the workload {workload} is not in this version"
    if framework in frameworks() and framework not in workloads.frameworks(workload):
        return f"{workload} has no pair in {framework} in this version"
    return ""


def _plain(data: Mapping[str, Any]) -> Any:
    """As a log holds it: tuples are lists there."""
    import json

    return json.loads(json.dumps(data))


def _accepted(same: Sequence[FoundResult], code: str, plan: Plan) -> GridEntry | None:
    """The newest result of this code and machine that the checker accepts, out of memory included."""
    for found in same:
        if found.code == code:
            entry = entry_of(row_of(found.folder))
            if entry.settled and entry.device == device_here(plan):
                return entry
    return None


def device_here(plan: Plan) -> str:
    """What a result of ``plan`` would call its device."""
    if plan.gpus:
        names = sorted({gpu.name for gpu in plan.gpus})
        return names[0] if len(names) == 1 else f"mixed: {', '.join(names)}"
    return _processor()


@cache
def _processor() -> str:
    from suite.telemetry.facts import machine_facts

    facts, _ = machine_facts(())
    return str(facts["cpu"]["model"] or "")


def _entry(key: Key, division: str, settings: Settings) -> GridEntry:
    fields = asdict(key)
    batch, data = fields.pop("batch"), fields.pop("data")
    fields["batch_per_device"] = MAX if settings.batch_max else batch
    return GridEntry((division, key.scale, data, settings.mode), fields, NOT_RUN)


def _unresolved(cell: Cell, status: str, why: str) -> GridEntry:
    """A cell that no plan can be made of, by what its words say."""

    def said(name: str) -> str:
        return cell.value(name) or _UNSTATED.get(name, "")

    scale = said("scale")
    division = said("division") or {"mini": "practice", "reference": "open"}.get(scale, "")
    names = ("workload", "framework", "phase", "scenario", "precision", "scale", "cache", "variant")
    key: dict[str, Any] = {name: said(name) for name in names}
    key["batch_per_device"], key["devices"] = _number(said("batch")), _number(said("devices"))
    return GridEntry((division, scale, said("data"), said("mode")), key, status, why)


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def limits_words(plan: Plan) -> str:
    """The limits of a plan, its loader and storage format, as the tables name them."""
    from suite.metrics.image import apart

    limits = plan.limits
    words = {"cpus": limits.cpus, "cpuset": limits.cpuset, "memory_bytes": limits.memory_bytes}
    return apart(words, plan.settings.loader, plan.settings.storage)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
