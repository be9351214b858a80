"""TELE: counters at window start and end, samples between them and in the tail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from suite.checker.context import Context, Fault, counter_change, end_of, rule, start_of
from suite.log.model import Event

_DEVICE_COUNTERS = ("energy_mj", "ecc_corrected", "ecc_uncorrected", "pcie_replay")
_HOST_COUNTERS = ("cpu_usage_ns", "cpu_throttled_ns", "io_read_bytes", "io_write_bytes", "cpu_pressure_ns")
_PROCESS_COUNTERS = ("cpu_time_ns", "read_bytes")
_THROTTLING = ("sw_thermal", "hw_thermal", "hw_power_brake")


def _node_counters(c: Context) -> Iterator[tuple[Event, Event, int]]:
    """(counters at window start, counters at window end, ns between them) of each repeat and node."""
    for repeat in c.repeats:
        for node in range(start_of(repeat)["nodes"]):
            opened, closed = repeat.counters("window_open", node), repeat.counters("window_close", node)
            if opened is not None and closed is not None:
                yield opened, closed, closed["offset_ns"] - opened["offset_ns"]


def _devices(c: Context) -> Iterator[tuple[Event, int, Mapping[str, Any], Mapping[str, Any], int]]:
    """(event at window end, index, counters at start, counters at end, ns) of each device and repeat."""
    for opened, closed, passed in _node_counters(c):
        pairs = zip(opened["devices"] or (), closed["devices"] or (), strict=False)
        for index, (before, after) in enumerate(pairs):
            if before is not None and after is not None:
                yield closed, index, before, after, passed


@rule("TELE-001")
def counters_outside_window(c: Context) -> Iterator[Fault]:
    """The counters were read before window start and after window end."""
    slack = c.rules.limit("receipt_ns")
    for repeat in c.repeats:
        window = end_of(repeat)["window"]
        opened, closed = repeat.counters("window_open"), repeat.counters("window_close")
        if opened is not None and opened["offset_ns"] > window["open_ns"] + slack:
            yield Fault(opened.location("offset_ns"), f"at most {window['open_ns']}", opened["offset_ns"])
        if closed is not None and closed["offset_ns"] < window["close_ns"] - slack:
            yield Fault(closed.location("offset_ns"), f"at least {window['close_ns']}", closed["offset_ns"])


@rule("TELE-002")
def counters_grow(c: Context) -> Iterator[Fault]:
    """Counters do not decrease within a repeat."""
    for opened, closed, _ in _node_counters(c):
        for part, names in (("host", _HOST_COUNTERS), ("processes", _PROCESS_COUNTERS)):
            for name in names:
                change = counter_change(opened[part], closed[part], name)
                if change is not None and change < 0:
                    yield Fault(closed.location(f"{part}.{name}"), opened[part][name], closed[part][name])
    for closed, index, before, after, _ in _devices(c):
        pairs = [(before, after, name) for name in _DEVICE_COUNTERS]
        pairs += [(before["throttle_ns"], after["throttle_ns"], name) for name in _THROTTLING]
        for first, second, name in pairs:
            change = counter_change(first, second, name)
            if change is not None and change < 0:
                yield Fault(
                    closed.location(f"devices.{index}.{name}"), f"at least {first[name]}", second[name]
                )


@rule("TELE-003")
def not_throttled(c: Context) -> Iterator[Fault]:
    """Thermal throttling and power brake slowed the device in less than 1 % of the window."""
    limit = c.rules.limit("throttle_share")
    for closed, index, before, after, passed in _devices(c):
        for name in _THROTTLING:
            change = counter_change(before["throttle_ns"], after["throttle_ns"], name)
            if change is not None and passed > 0 and change > limit * passed:
                location = closed.location(f"devices.{index}.throttle_ns.{name}")
                yield Fault(location, f"at most {limit:.0%} of the window", f"{change / passed:.1%}")


@rule("TELE-004")
def power_in_range(c: Context) -> Iterator[Fault]:
    """Mean power is above 0 and at most the power limit of the device."""
    if c.device is None:
        return
    highest = float(c.device["power_w"]) * c.rules.limit("power_over")
    for closed, index, before, after, passed in _devices(c):
        change = counter_change(before, after, "energy_mj")
        if change is None or passed < c.rules.limit("power_span_ns"):
            continue
        watts = change * 1e6 / passed
        if not 0 < watts <= highest:
            yield Fault(
                closed.location(f"devices.{index}.energy_mj"),
                f"above 0, at most {highest:.0f} W",
                f"{watts:.0f} W",
            )


@rule("TELE-005")
def exclusive_device_use(c: Context) -> Iterator[Fault]:
    """No other process used the devices."""
    for repeat in c.repeats:
        for event in repeat.telemetry:
            for index, device in enumerate(event["devices"] or ()):
                if device is not None and device["foreign_processes"]:
                    found = str(device["foreign_processes"])
                    yield Fault(event.location(f"devices.{index}.foreign_processes"), "0", found)


@rule("TELE-006")
def no_memory_errors(c: Context) -> Iterator[Fault]:
    """No uncorrectable memory error in the window."""
    for closed, index, before, after, _ in _devices(c):
        change = counter_change(before, after, "ecc_uncorrected")
        if change is not None and change > 0:
            yield Fault(closed.location(f"devices.{index}.ecc_uncorrected"), "no new errors", change)


@rule("TELE-007")
def samples_in_order(c: Context) -> Iterator[Fault]:
    """Samples are in the order of their times."""
    for repeat in c.repeats:
        last = 0
        for event in (*repeat.samples("window"), *repeat.samples("tail")):
            if event["offset_ns"] < last:
                yield Fault(event.location("offset_ns"), f"at least {last}", event["offset_ns"])
            last = event["offset_ns"]


@rule("TELE-013")
def sample_times_distinct(c: Context) -> Iterator[Fault]:
    """No two samples of a repeat were taken at one time."""
    for repeat in c.repeats:
        seen: set[int] = set()
        for event in (*repeat.samples("window"), *repeat.samples("tail")):
            if event["offset_ns"] in seen:
                yield Fault(
                    event.location("offset_ns"), "a time of no other sample", f"{event['offset_ns']} again"
                )
            seen.add(event["offset_ns"])


@rule("TELE-008")
def devices_counted(c: Context) -> Iterator[Fault]:
    """Counters list as many devices as the key, the same ones in every repeat."""
    known: dict[int, list[Any]] = {}
    for opened, closed, _ in _node_counters(c):
        for event in (opened, closed):
            found = [None if device is None else device["uuid"] for device in event["devices"] or ()]
            first = known.setdefault(event["node"], found)
            count = c.devices // start_of(c.record.repeats[0])["nodes"]
            if (found and len(found) != count) or found != first or len(set(found)) != len(found):
                wanted = f"{count} devices, the same in every repeat"
                yield Fault(event.location("devices"), wanted, f"{len(found)} devices")


@rule("TELE-009")
def samples_in_window_or_tail(c: Context) -> Iterator[Fault]:
    """Samples of the window were taken inside it, those of the tail after it."""
    slack = c.rules.limit("receipt_ns")
    for repeat in c.repeats:
        window = end_of(repeat)["window"]
        low, high = window["open_ns"] - slack, window["close_ns"] + slack
        for event in repeat.samples("window"):
            if not low <= event["offset_ns"] <= high:
                wanted = f"from {window['open_ns']} to {window['close_ns']}"
                yield Fault(event.location("offset_ns"), wanted, event["offset_ns"])
        for event in repeat.samples("tail"):
            if event["offset_ns"] < window["close_ns"] - slack:
                yield Fault(event.location("offset_ns"), f"after {window['close_ns']}", event["offset_ns"])


@rule("TELE-010")
def processor_time_possible(c: Context) -> Iterator[Fault]:
    """The ranks of a node used no more processor time than the machine's processors have in the window."""
    outside = {(e.repeat, e["node"]): e["facts"] for repeat in c.repeats for e in repeat.envs_of("outside")}
    for opened, closed, passed in _node_counters(c):
        cpu = outside.get((opened.repeat, opened["node"]), {}).get("cpu")
        threads = cpu.get("threads") if isinstance(cpu, Mapping) else None
        change = counter_change(opened["processes"], closed["processes"], "cpu_time_ns")
        if type(threads) is not int or change is None:
            continue
        most = c.rules.limit("power_over") * threads * passed
        if change > most:
            location = closed.location("processes.cpu_time_ns")
            yield Fault(location, f"an increase of at most {int(most)} by {threads} processors", f"{change}")


@rule("TELE-011")
def host_processors_free(c: Context) -> Iterator[Fault]:
    """The host's processors were neither throttled nor contended for."""
    for opened, closed, passed in _node_counters(c):
        for name, gate in (("cpu_throttled_ns", "throttle_share"), ("cpu_pressure_ns", "pressure_share")):
            change, limit = counter_change(opened["host"], closed["host"], name), c.rules.limit(gate)
            if change is not None and passed > 0 and change > limit * passed:
                location = closed.location(f"host.{name}")
                yield Fault(location, f"at most {limit:.0%} of the window", f"{change / passed:.1%}")


@rule("TELE-012")
def device_memory_of_the_run(c: Context) -> Iterator[Fault]:
    """The used device memory is little more than the framework allocated."""
    limit = int(c.rules.limit("foreign_memory_bytes"))
    for repeat in c.repeats:
        for node in range(start_of(repeat)["nodes"]):
            opened = repeat.counters("window_open", node)
            devices = opened["devices"] if opened is not None else None
            reports = [report for report in repeat.reports if report["node"] == node]
            for index, (device, report) in enumerate(zip(devices or (), reports, strict=False)):
                peak = None if report["memory"] is None else report["memory"]["peak_device_bytes"]
                used = None if device is None else device["memory_used_bytes"]
                if opened is None or peak is None or used is None:
                    continue
                if used - peak > limit:
                    location = opened.location(f"devices.{index}.memory_used_bytes")
                    yield Fault(location, f"at most {limit} above its rank's peak of {peak}", used)


@rule("TELE-014", mode="throughput")
def energy_agrees_with_power(c: Context) -> Iterator[Fault]:
    """In a repeat of sufficient length the energy counter agrees with sampled power."""
    span, share = c.rules.limit("energy_span_ns"), c.rules.limit("energy_share")
    for repeat in c.repeats:
        events = sorted(repeat.telemetry, key=lambda event: int(event["offset_ns"]))
        for index in range(c.devices):
            rows = [
                (event, row) for event in events for row in (event["devices"] or ())[index : index + 1] if row
            ]
            seen = [(event, row) for event, row in rows if None not in (row["energy_mj"], row["power_mw"])]
            if len(seen) < 2:
                continue
            (first, before), (last, after) = seen[0], seen[-1]
            passed = last["offset_ns"] - first["offset_ns"]
            if passed < span:
                continue
            sampled = sum(
                (late["offset_ns"] - early["offset_ns"]) * (one["power_mw"] + other["power_mw"]) / 2e9
                for (early, one), (late, other) in pairwise(seen)
            )
            counted = after["energy_mj"] - before["energy_mj"]
            if abs(counted - sampled) > share * sampled:
                location = last.location(f"devices.{index}.energy_mj")
                yield Fault(
                    location,
                    f"{sampled / 1e3:.0f} J of the sampled power, within {share:.0%}",
                    f"{counted / 1e3:.0f} J",
                )
