"""Power, and energy per unit of work, by counters: of the accelerators, and with processors and memory.

The counters of accelerators move every 20 to 100 ms, so that a window counts from 2 s on. In place of shorter
ones the untimed steps of soaks and telemetry tail count, 30 s at reference scale, which run the same step:
their mean power; energy is that power, times the time of a step of the soaks, over the units of a step. Soaks
wait for their results more often than windows, so that short inference steps may draw less power in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

from suite.log.model import Event, Record, Repeat
from suite.log.units import count
from suite.metrics.machine import at
from suite.metrics.metric import Metric, missing, reason_of_reading

SHORTEST_NS = 2_000_000_000  # of a window, a soak or a tail
DEVICES, NODE = "devices", "node"
NO_DEVICE = "no accelerator in this run"


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy per unit: the metric of the whole run, and the value of each repeat where it has one."""

    metric: Metric
    repeats: list[float] = field(default_factory=list)


class _Unknown(Exception):
    """Energy that was not measured; the message is the reason."""


def energy_per_unit(record: Record, scope: str, unit: str) -> Energy:
    """Joules per ``unit`` of a run in mode throughput. ``scope``: devices, or the node with them.

    The node is what RAPL counts, processors and memory, and the accelerators: no disks, fans or power supply.
    """
    done = [repeat for repeat in record.repeats if repeat.end is not None and repeat.units]
    if not done:
        return Energy(missing("no repeat has counted work"))
    try:
        parts, where = _measured(done, scope)
    except _Unknown as problem:
        return Energy(missing(str(problem)))
    what = "energy counters of the accelerators"
    if scope == NODE:
        what = "energy counters of processors and memory (RAPL)"
        what += " and accelerators" if _has_devices(done[0]) else ""
    return Energy(
        Metric(_sum(parts).joules_per_unit, f"J/{unit}", note=f"{what} over {where}"),
        [part.joules_per_unit for part in parts],
    )


def device_power(done: Sequence[Repeat]) -> Metric:
    """Mean power of an accelerator in W over the completed repeats ``done``, at least one."""
    try:
        parts, where = _measured(done, DEVICES)
    except _Unknown as problem:
        return missing(str(problem))
    devices = sum(len(opened["devices"]) for opened, _ in done[0].counter_pairs() if opened is not None)
    total = _sum(parts)
    watts = 1e9 * total.joules / total.ns / devices
    return Metric(watts, "W", note=f"mean of each device, energy counters over {where}")


def _measured(done: Sequence[Repeat], scope: str) -> tuple[list[_Part], str]:
    """The parts of the repeats ``done``, and over what they were measured; _Unknown if one was not."""
    shortest = min(repeat.window_ns or 0 for repeat in done)
    if shortest >= SHORTEST_NS:
        return [_of_window(repeat, scope) for repeat in done], count(len(done), "window")
    parts = [_of_soak(repeat, scope) for repeat in done]
    where = f"{_sum(parts).ns / 1e9:.3g} s of untimed steps (soaks and tail)"
    return parts, f"{where}, because a window lasts {shortest / 1e9:.2g} s"


@dataclass(frozen=True, slots=True)
class _Part:
    """Energy over ``ns``; ``steps`` took ``step_ns``, and ``of`` steps had ``units`` of work."""

    joules: float
    ns: int
    step_ns: int
    steps: int
    units: int
    of: int

    @property
    def joules_per_unit(self) -> float:
        return (self.joules / self.ns) * (self.step_ns / self.steps) * (self.of / self.units)

    def plus(self, other: _Part) -> _Part:
        return _Part(
            self.joules + other.joules, self.ns + other.ns, self.step_ns + other.step_ns,
            self.steps + other.steps, self.units + other.units, self.of + other.of,
        )  # fmt: skip


def _sum(parts: Sequence[_Part]) -> _Part:
    return reduce(_Part.plus, parts)


def _of_window(repeat: Repeat, scope: str) -> _Part:
    joules, spans = 0.0, []
    for opened, closed in repeat.counter_pairs():
        if opened is None or closed is None:
            raise _Unknown(f"repeat {repeat.index} has no counters at window start and window end")
        joules += _joules(repeat, opened, closed, scope)
        spans.append(_apart(opened, closed))
    if spans[0] <= 0:
        raise _Unknown("the counters of window start and end have the same time")
    steps = _steps(repeat)
    return _Part(joules, spans[0], spans[0], steps, int(repeat.units or 0), steps)


def _of_soak(repeat: Repeat, scope: str) -> _Part:
    """From the samples of soak and tail, and the time that the steps of the soak took."""
    if scope == DEVICES and not _has_devices(repeat):
        raise _Unknown(NO_DEVICE)
    for opened, _ in repeat.counter_pairs():
        if scope == NODE and opened is not None and at(opened.data, "host.energy_uj") is None:
            raise _Unknown(reason_of_reading(repeat, opened, "host.energy_uj"))
    nodes = len(repeat.counter_pairs())
    joules, longest = 0.0, 0
    for node in range(nodes):
        spent = [
            (_joules(repeat, first, last, scope), _apart(first, last)) for first, last in _spans(repeat, node)
        ]
        if not spent:
            window = (repeat.window_ns or 0) / 1e9
            raise _Unknown(
                f"energy needs 2 s: a window lasts {window:.2g} s, and no soak of the run was sampled so long"
            )
        here = sum(ns for _, ns in spent)
        longest = longest or here
        joules += sum(one for one, _ in spent) * longest / here  # over the time of node 0
    report = repeat.reports[0]
    if not report["soak_ns"] or not report["soak_steps"]:
        raise _Unknown("the run has no soak, so that no untimed step was counted")
    return _Part(
        joules,
        longest,
        int(report["soak_ns"]),
        int(report["soak_steps"]),
        int(repeat.units or 0),
        _steps(repeat),
    )


def _steps(repeat: Repeat) -> int:
    """The measured steps of a rank."""
    return len(repeat.steps_of(repeat.ranks[0], "measured"))


def _spans(repeat: Repeat, node: int) -> Iterator[tuple[Event, Event]]:
    """The first and last sample of soak and tail on ``node``, if they are 2 s apart or more."""
    for name in ("soak", "tail"):
        found: Sequence[Event] = [one for one in repeat.samples(name) if one["node"] == node]
        if found and _apart(found[0], found[-1]) >= SHORTEST_NS:
            yield found[0], found[-1]


def _apart(first: Event, last: Event) -> int:
    return int(last["offset_ns"] - first["offset_ns"])


def _has_devices(repeat: Repeat) -> bool:
    return any(opened is not None and opened["devices"] for opened, _ in repeat.counter_pairs())


def _joules(repeat: Repeat, first: Event, last: Event, scope: str) -> float:
    """Joules of one node between two readings; _Unknown where a counter is null."""
    if scope == NODE:
        counted = _difference(repeat, first, last, "host.energy_uj", 1e6)
        return counted + (_of_devices(repeat, first, last) if first["devices"] != [] else 0.0)
    return _of_devices(repeat, first, last)


def _of_devices(repeat: Repeat, first: Event, last: Event) -> float:
    if first["devices"] is None:
        raise _Unknown(reason_of_reading(repeat, first, "devices"))
    if not first["devices"]:
        raise _Unknown(NO_DEVICE)
    pairs = range(len(first["devices"]))
    total = sum(_difference(repeat, first, last, f"devices.{number}.energy_mj", 1e3) for number in pairs)
    if total <= 0:
        raise _Unknown("the energy counter did not move")
    return total


def _difference(repeat: Repeat, first: Event, last: Event, path: str, scale: float) -> float:
    part, *rest = path.split(".")
    values = []
    for event in (first, last):
        inner = event[part]
        if part == "devices":
            inner = dict(enumerate(inner or ())).get(int(rest[0]))
        values.append(at(inner, rest[-1]))
        if values[-1] is None:
            raise _Unknown(reason_of_reading(repeat, event, path))
    return float(values[1] - values[0]) / scale
