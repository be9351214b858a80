"""The advice for one goal: the smallest and the cheapest sufficient row, and what to measure next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suite.advice.advise import (
    Advisor,
    Row,
    cheapest,
    corners,
    kinks,
    smallest,
    undecided,
    verdict_of,
)
from suite.advice.cells import Config, Group
from suite.advice.goal import CPUS, DEVICES, THREADS, Goal
from suite.advice.prices import Prices
from suite.log.units import count
from suite.rules import LATEST, load

_MOST_NEXT = 4  # commands: after these the answer is computed again
_USUAL = {"scenario": "offline", "loader": "native", "nodes": 1, "storage": None, "strategy": None}


@dataclass(frozen=True, slots=True)
class Answer:
    """What suffices for a goal among the groups that measure one thing. Each row comes with its group."""

    smallest: tuple[Advisor, Row] | None
    cheapest: tuple[Advisor, Row] | None
    next_commands: tuple[str, ...]  # empty where nothing more needs to be measured
    why_next: str


def answer_of(
    advised: Sequence[tuple[Advisor, Sequence[Row]]],
    goal: Goal | None,
    epoch_units: float | None,
    grid: dict[str, tuple[str, ...]],
    prices: Prices | None,
) -> Answer:
    """The answer of the groups ``advised``; without a goal, only what to measure where a model is missing."""
    if goal is None:
        commands = [command for advisor, _ in advised for command in _for_a_model(advisor, grid)]
        why = next((advisor.no_model for advisor, _ in advised if advisor.model is None), "")
        return Answer(None, None, tuple(commands[:_MOST_NEXT]), why)
    rows = [
        (advisor, row)
        for advisor, some in advised
        for row in some
        if (row.machine is not None) == (prices is not None)
    ]
    enough = [
        (advisor, row)
        for advisor, row in rows
        if verdict_of(row, goal, epoch_units_of(advisor, epoch_units)).surely
    ]
    small, cheap = smallest([row for _, row in enough]), cheapest([row for _, row in enough])
    commands, why = _next(advised, goal, epoch_units, grid, small, cheap, prices)
    return Answer(_owner(enough, small), _owner(enough, cheap), tuple(commands), why)


def epoch_units_of(advisor: Advisor, given: float | None) -> float | None:
    """The units of an epoch: as the user gave it, else by the rules."""
    return given if given is not None else advisor.group.epoch_units


def _owner(rows: Iterable[tuple[Advisor, Row]], one: Row | None) -> tuple[Advisor, Row] | None:
    return next((pair for pair in rows if pair[1] is one), None)


def _next(
    advised: Sequence[tuple[Advisor, Sequence[Row]]],
    goal: Goal,
    epoch_units: float | None,
    grid: dict[str, tuple[str, ...]],
    small: Row | None,
    cheap: Row | None,
    prices: Prices | None,
) -> tuple[list[str], str]:
    """(commands that measure what may change the answer, why)."""
    for advisor, rows in advised:
        if advisor.model is None and (commands := _for_a_model(advisor, grid)):
            return commands[:_MOST_NEXT], advisor.no_model
        epoch = epoch_units_of(advisor, epoch_units)
        some = [row for row in rows if (row.machine is not None) == (prices is not None)]
        open_rows = undecided(some, goal, epoch, small)
        if prices is not None and cheap is not None and cheap.machine is not None:
            price = cheap.machine.price
            open_rows += [
                row
                for row in undecided(some, goal, epoch, None)
                if row not in open_rows and row.machine is not None and row.machine.price < price
            ]
        if not open_rows:
            continue
        # Corners and the kink tell most about the model, the undecided rows most about the answer.
        useful = [*corners(advisor, grid), *kinks(advisor, grid), *(row.config for row in open_rows)]
        commands = [command_of(advisor.group, config) for config in useful]
        why = (
            f"{count(len(open_rows), 'configuration')} may or may not reach {goal.text}, the first: "
            + _named(open_rows[0])
        )
        return list(dict.fromkeys(commands))[:_MOST_NEXT], why
    return [], ""


def _named(row: Row) -> str:
    name = f"{row.machine.name}, " if row.machine else ""
    cpus, devices = f"{row.config.cpus:g} processors", count(row.config.devices, "device")
    return f"{name}{cpus}, batch {row.config.batch}, {devices}"


def _for_a_model(advisor: Advisor, grid: dict[str, tuple[str, ...]]) -> list[str]:
    """Commands that measure the corners of a group without a model, then the rest of the grid."""
    if advisor.model is not None:
        return []
    ends = corners(advisor, grid)
    rest = [
        config
        for config in advisor.configs(grid)
        if config not in ends and advisor.row(config).source == "unknown"
    ]
    return [command_of(advisor.group, config) for config in (*ends, *rest)]


def command_of(group: Group, config: Config) -> str:
    """The command that measures one cell."""
    key = group.key
    words = ["make", "run"]
    for name in (
        "workload",
        "framework",
        "phase",
        "scenario",
        "precision",
        "scale",
        "data",
        "variant",
        "loader",
        "storage",
    ):
        value = key.get(name)
        if value is not None and _USUAL.get(name) != value:
            words.append(f"{name.upper()}={value}")
    words.append(f"BATCH={config.batch}")
    if config.devices > 1:
        words.append(f"DEVICES={config.devices}")
        if key.get("strategy"):
            words.append(f"STRATEGY={key['strategy']}")
    if group.nodes > 1:
        words.append(f"NODES={group.nodes}")
    if config.cache != "warm":
        words.append(f"CACHE={config.cache}")
    native = group.hidden.get("runtime") == "native"
    if native:
        per_device = max(1, round(config.cpus * group.nodes / config.devices))
        words.append(f"ARGS=framework.threads={per_device}")
    else:
        words.append(f"ARGS=runtime.cpus={config.cpus:g}")
    return shlex.join(words)


def sweep_command(group: Group) -> str:
    """The command that measures a first grid, for a group whose cells vary too little."""
    key = group.key
    words = ["make", "sweep", f"WORKLOAD={key['workload']}", f"FRAMEWORK={key['framework']}"]
    axis = THREADS if group.hidden.get("runtime") == "native" else CPUS
    cells = [cell.config for cell in group.cells]
    batch = max(config.batch for config in cells)
    batches = sorted({max(1, batch // 4), max(1, batch // 2), batch})
    most = max(config.cpus for config in cells)
    cpus = sorted({max(1.0, most / 4), max(1.0, most / 2), most})
    parts = [f"{axis}={','.join(f'{one:g}' for one in cpus)}", f"batch={','.join(map(str, batches))}"]
    devices = sorted({config.devices for config in cells})
    parts += [f"{DEVICES}={','.join(map(str, devices))}"] if len(devices) > 1 else []
    return shlex.join([*words, f"GRID={' '.join(parts)}"])


def title_of(group: Group) -> str:
    """What the cells of a group share, in one line."""
    key = group.key
    parts = [f"{key['workload']} {key['variant']}", str(key["framework"]), str(key["phase"])]
    parts += [str(key["scenario"])] if key["scenario"] != "offline" else []
    parts += [str(key["precision"]), f"{key['scale']} scale", f"{key['data']} data"]
    parts += [f"loader {key['loader']}"] if key["loader"] not in (None, "native") else []
    parts += [f"from {key['storage']}"] if key["storage"] not in (None, "files") else []
    parts += [str(key["strategy"])] if key["strategy"] else []
    parts += [f"{group.nodes} nodes"] if group.nodes > 1 else []
    processor = group.hidden.get("cpu") or "an unnamed processor"
    device = group.device if group.processor else f"{group.device}, host {processor}"
    return f"{', '.join(parts)}; on {device}"


def data_sheet(group: Group) -> dict[str, Any] | None:
    """The device in the rules: W, FLOP/s at the group's precision, bytes/s; None if it is not there."""
    device = None if group.processor else load(LATEST).device(group.device)
    if device is None:
        return None
    flops = device["flops"].get(group.key["precision"])
    return {
        "power_w": float(device["power_w"]),
        "flop_per_s": None if flops is None else float(flops),
        "memory_bytes_per_s": float(device["memory_bytes_per_s"]),
        "source": str(device["source"]),
    }


def pivot(rows: Sequence[Row]) -> dict[int, dict[int, Row]]:
    """By batch and devices the row with the most processors, of measured cells and of the grid."""
    found: dict[int, dict[int, Row]] = {}
    for row in sorted(
        rows, key=lambda row: (row.config.cpus, row.config.cache == "warm", row.config.memory_bytes or 0)
    ):
        if row.machine is None:
            found.setdefault(row.config.batch, {})[row.config.devices] = row
    return {batch: dict(sorted(found[batch].items())) for batch in sorted(found)}


def fewest_devices(table: dict[int, dict[int, Row]]) -> dict[int, int]:
    """Global batch -> the fewest devices that hold it, where one device does not or was not tried."""
    holds: dict[int, int] = {}
    fails: set[int] = set()
    for batch, by_devices in table.items():
        for devices, row in by_devices.items():
            if row.source == "OOM":
                fails.add(batch * devices)
            elif row.per_second is not None:
                size = batch * devices
                holds[size] = min(devices, holds.get(size, devices))
    return {size: holds[size] for size in sorted(fails & holds.keys())}
