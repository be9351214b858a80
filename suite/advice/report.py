"""The advice for one goal: the smallest and the cheapest sufficient row, and what to measure next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suite.advice.advise import (
    MEASURED,
    UNKNOWN,
    Advisor,
    Row,
    cheapest,
    smallest,
    verdict_of,
)
from suite.advice.cells import Config, Group
from suite.advice.goal import Goal
from suite.advice.model import parameter_count
from suite.advice.next_cells import corners, kinks, undecided
from suite.advice.prices import Prices
from suite.log.units import count
from suite.rules import LATEST, load

_MOST_NEXT = 4  # cells: after these the answer is computed again
_OPEN_FIRST = 2  # of these, at most so many that decide the answer come first
_USUAL = {"scenario": "offline", "loader": "native", "nodes": 1, "storage": None, "strategy": None}


@dataclass(frozen=True, slots=True)
class Answer:
    """What suffices for a goal among the groups that measure one thing. Each row comes with its group.

    ``closest`` is the smallest row whose rate is at least 99 % of the goal, where none surely reaches it.
    """

    smallest: tuple[Advisor, Row] | None
    cheapest: tuple[Advisor, Row] | None
    closest: tuple[Advisor, Row] | None
    next_cells: tuple[tuple[Group, Config], ...]  # empty where nothing more needs to be measured
    why_next: str
    problem: str = ""  # why the goal cannot be judged at all

    @property
    def next_commands(self) -> list[str]:
        """The commands that measure the next cells."""
        return list(dict.fromkeys(command_of(group, config) for group, config in self.next_cells))


def answer_of(
    advised: Sequence[tuple[Advisor, Sequence[Row]]],
    goal: Goal | None,
    epoch_units: float | None,
    grid: dict[str, tuple[str, ...]],
    prices: Prices | None,
) -> Answer:
    """The answer of the groups ``advised``; without a goal, only what to measure where a model is missing.

    With ``prices`` the rows are the machines of the price file, without them all other configurations.
    """
    if problem := _problem(advised, goal, epoch_units, prices):
        return Answer(None, None, None, (), "", problem)
    rows = [
        (advisor, row, verdict_of(row, goal, epoch_units_of(advisor, epoch_units)))
        for advisor, some in advised
        for row in some
        if goal is not None and (row.machine is not None) == (prices is not None)
    ]
    enough = [(advisor, row) for advisor, row, verdict in rows if verdict.surely]
    of_work = goal is not None and goal.of_epochs
    small, cheap = smallest(enough), cheapest(enough, of_work=of_work)
    close = smallest([(advisor, row) for advisor, row, verdict in rows if verdict.closely and small is None])
    found = (small, cheap, close)
    for advisor, _ in advised:
        of_advisor = [(row, verdict) for owner, row, verdict in rows if owner is advisor]
        open_rows = undecided(of_advisor, small, cheap, of_work=of_work)
        if advisor.model is None and (open_rows or goal is None) and (cells := _for_a_model(advisor, grid)):
            return _answer(found, advisor, cells, _too_few(advisor, grid))
        if open_rows:
            # The open rows decide the answer; the corners and the kink improve the model for all rows.
            cells = [row.config for row in open_rows[:_OPEN_FIRST]]
            cells += [*corners(advisor, grid), *kinks(advisor, grid)]
            why = f"{count(len(open_rows), 'configuration')} may or may not reach the goal"
            return _answer(found, advisor, cells, why)
    again = [] if close is None else [close]
    again += [(advisor, row) for advisor, row, verdict in rows if small is None and verdict.possibly]
    for advisor, row in again:
        if row.source == MEASURED:
            why = (
                "the interval of a measured configuration contains the goal: "
                "run it again on a quiet machine, with several repeats"
            )
            return _answer(found, advisor, [row.config], why)
    return Answer(*found, (), "")


_Found = tuple[Advisor, Row] | None


def _answer(
    found: tuple[_Found, _Found, _Found], advisor: Advisor, cells: Sequence[Config], why: str
) -> Answer:
    once = list(dict.fromkeys(cells))[:_MOST_NEXT]
    return Answer(*found, tuple((advisor.group, config) for config in once), why)


def _problem(
    advised: Sequence[tuple[Advisor, Sequence[Row]]],
    goal: Goal | None,
    epoch_units: float | None,
    prices: Prices | None,
) -> str:
    """Why no row of ``advised`` can be judged by ``goal``; empty if some can."""
    if goal is None:
        return ""
    if goal.of_epochs and all(epoch_units_of(advisor, epoch_units) is None for advisor, _ in advised):
        return f"needs the {advised[0][0].group.unit} of an epoch, which the rules do not state: EPOCH=N"
    if prices is not None and not any(row.machine for _, rows in advised for row in rows):
        return "is not judged, because no machine of the price file fits these results"
    return ""


def _too_few(advisor: Advisor, grid: dict[str, tuple[str, ...]]) -> str:
    """How many cells a model over the measured cells and the grid takes, and how many there are.

    More than the cells so far: an axis counts as soon as a second value of it is measured.
    """
    points = [*map(advisor.group.point, advisor.configs(grid)), *advisor.points]
    group = advisor.group
    needed = parameter_count(points, processor=group.processor, host_works=group.host_works) + 1
    return f"a model of these configurations needs at least {needed} cells, found {len(advisor.points)}"


def epoch_units_of(advisor: Advisor, given: float | None) -> float | None:
    """The units of an epoch: as the user gave it, else by the rules."""
    return given if given is not None else advisor.group.epoch_units


def _for_a_model(advisor: Advisor, grid: dict[str, tuple[str, ...]]) -> list[Config]:
    """The corners of a group without a model, then the rest of the grid."""
    ends = corners(advisor, grid)
    configs = advisor.configs(grid)
    return [*ends, *(one for one in configs if one not in ends and advisor.row(one).source == UNKNOWN)]


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
    if group.host.get("runtime") == "native":
        words.append("RUNTIME=native")  # where there is an engine, a run on a GPU takes a container
        per_device = max(1, round(config.cpus * group.nodes / config.devices))
        words.append(f"ARGS=framework.threads={per_device}")
    else:
        words.append(f"ARGS=runtime.cpus={config.cpus:g}")
    return shlex.join(words)


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
    processor = group.host.get("cpu") or "an unnamed processor"
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
