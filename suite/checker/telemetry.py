"""TELE: counters at window start and end, samples between them and in the tail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from suite.checker.context import WITH_KEY, Context, Fault, counter_change, end_of, rule, start_of
from suite.checker.devices import devices_of
from suite.contract import BENCHMARK
from suite.log.model import Event, Repeat

_NS = 1_000_000_000
_LONG = 1_000  # steps of a window in which growth is judged, as in suite/metrics/long_run.py
_DEVICE_COUNTERS = ("energy_mj", "ecc_corrected", "ecc_uncorrected", "pcie_replay")
_HOST_COUNTERS = (
    "cpu_usage_ns",
    "cpu_throttled_ns",
    "io_read_bytes",
    "io_write_bytes",
    "cpu_pressure_ns",
    "energy_uj",
)
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
    """Mean power is above 0 and at most the power limit: the one that the device states, and the table's.

    By the energy counter: in each window of sufficient length, and in all windows together.
    """
    stated = _power_limits_w(c)
    table = None if c.device is None else float(c.device["power_w"])
    windows, totals = [], dict[tuple[int, int], tuple[str, int, int]]()
    for closed, index, before, after, passed in _devices(c):
        device, location = (closed["node"], index), closed.location(f"devices.{index}.energy_mj")
        change = counter_change(before, after, "energy_mj")
        if change is not None:
            windows.append((device, location, change, passed))
            _, energy, span = totals.get(device, (location, 0, 0))
            totals[device] = location, energy + change, span + passed
    together = [(device, *total) for device, total in totals.items()]
    for what, rows in (("in this window", windows), ("in all windows", together)):
        for device, location, millijoule, ns in rows:
            known = [one for one in (stated.get(device), table) if one is not None]
            if known and ns >= c.rules.limit("power_span_ns"):
                watts, highest = millijoule * 1e6 / ns, min(known) * c.rules.limit("power_over")
                if not 0 < watts <= highest:
                    yield Fault(location, f"above 0, at most {highest:.0f} W {what}", f"{watts:.0f} W")


def _power_limits_w(c: Context) -> dict[tuple[int, int], float]:
    """The power limits in W that the devices state, by node and index on the node."""
    listed = devices_of(c.repeats[0]) if c.repeats else ()
    limits = {(event["node"], index): row.get("power_limit_mw") for event, index, row in listed}
    return {device: limit / 1e3 for device, limit in limits.items() if type(limit) is int}


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
    """The samples of a node are in the order of their times, and no two have one time."""
    for repeat in c.repeats:
        last: dict[int, int] = {}
        for event in repeat.all_samples:
            before = last.get(event["node"], -1)
            if event["offset_ns"] <= before:
                yield Fault(event.location("offset_ns"), f"more than {before}", event["offset_ns"])
            last[event["node"]] = event["offset_ns"]


@rule("TELE-008")
def devices_counted(c: Context) -> Iterator[Fault]:
    """Counters list at least as many devices as the key, the same ones wherever they could be read."""
    known: dict[int, list[Any]] = {}
    for opened, closed, _ in _node_counters(c):
        for event in (opened, closed):
            found = [None if device is None else device["uuid"] for device in event["devices"] or ()]
            if not found:
                continue  # the driver did not answer: DEV-008 flags it
            first = known.setdefault(event["node"], found)
            count = c.devices // start_of(c.record.repeats[0])["nodes"]
            if len(found) < count or found != first or len(set(found)) != len(found):
                wanted = f"{count} devices or more, the same in every repeat"
                yield Fault(event.location("devices"), wanted, f"{len(found)} devices")


@rule("TELE-009")
def samples_where_they_claim(c: Context) -> Iterator[Fault]:
    """Samples of the window were taken inside it, those of the soak before it, those of the tail after it."""
    slack = int(c.rules.limit("receipt_ns"))
    for repeat in c.repeats:
        window = end_of(repeat)["window"]
        yield from _outside_soak(repeat, slack)
        low, high = window["open_ns"] - slack, window["close_ns"] + slack
        for event in repeat.samples("window"):
            if not low <= event["offset_ns"] <= high:
                wanted = f"from {window['open_ns']} to {window['close_ns']}"
                yield Fault(event.location("offset_ns"), wanted, event["offset_ns"])
        for event in repeat.samples("tail"):
            if event["offset_ns"] < window["close_ns"] - slack:
                yield Fault(event.location("offset_ns"), f"after {window['close_ns']}", event["offset_ns"])


def _outside_soak(repeat: Repeat, slack: int) -> Iterator[Fault]:
    """Samples of the soak before the parts that precede it, after those that follow it, or too far apart."""
    samples = repeat.samples("soak")
    for report in repeat.reports if samples else ():
        before = sum(report[name] or 0 for name in ("import_ns", "setup_ns", "compile_ns"))
        soak_ns = report["soak_ns"] or 0
        low = max(start_of(repeat).mono_ns + before, samples[0]["offset_ns"])
        high = min(report["window"]["open_ns"] - (report["warmup_ns"] or 0), low + soak_ns)
        for event in samples:
            if not low - slack <= event["offset_ns"] <= high + slack:
                wanted = f"from {low} to {high}, in the soak of rank {report['rank']}"
                yield Fault(event.location("offset_ns"), wanted, event["offset_ns"])


@rule("TELE-010")
def processor_time_possible(c: Context) -> Iterator[Fault]:
    """The ranks of a node used no more processor time than the machine's processors have in the window.

    What they report of themselves is most of what was read from outside, which is read around the window and
    includes their helpers, such as a parameter server (a quarter, seen with MXNet). The kernel may count a
    running thread a tick later for others than for itself.
    """
    least, tick = c.rules.limit("processor_time_share"), c.rules.limit("processor_tick_ns")
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
        repeat = next(one for one in c.repeats if one.index == opened.repeat)
        reports = [report for report in repeat.reports if report["node"] == opened["node"]]
        times = [report["cpu_time_ns"] for report in reports]
        if change > most or change < 0 or None in times:  # TELE-002 reports a decrease
            continue
        if not least * change <= (own := sum(times)) <= change + threads * tick:
            wanted = f"{least:.0%} to 100 % of {change}, by which the processor time of all ranks increased"
            yield Fault(reports[0].location("cpu_time_ns"), wanted, f"{own} in all ranks of the node")


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
    """The used device memory is little more than the framework allocated, and not far less.

    Most is allocated when the window opens: at least 81 % of the peak on H200s, in inference of `vgg16`.
    """
    limit, least = int(c.rules.limit("foreign_memory_bytes")), c.rules.limit("device_memory_share")
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
                elif used < least * peak:
                    location = opened.location(f"devices.{index}.memory_used_bytes")
                    yield Fault(location, f"at least {least:.0%} of its rank's peak of {peak}", used)


@rule("TELE-014", mode="throughput")
def energy_agrees_with_power(c: Context) -> Iterator[Fault]:
    """In a repeat with readings over a sufficient time the energy counter agrees with sampled power."""
    least, share = c.rules.limit("energy_span_ns"), c.rules.limit("energy_share")
    for repeat in c.repeats:
        for node in range(start_of(repeat)["nodes"]):
            spans = list(_spans_of_steps(repeat, node, int(c.rules.limit("power_lag_ns"))))
            for index in range(c.devices // start_of(repeat)["nodes"]):
                passed, sampled, counted, last = _energy(spans, index)
                if last is None or passed < least or abs(counted - sampled) <= share * sampled:
                    continue
                yield Fault(
                    last.location(f"devices.{index}.energy_mj"),
                    f"{sampled / 1e3:.0f} J of the sampled power, within {share:.0%}",
                    f"{counted / 1e3:.0f} J",
                )


@rule("TELE-017", mode="throughput", kind=WITH_KEY)
def devices_equally_busy(c: Context) -> Iterator[Fault]:
    """In a repeat with readings over a sufficient time, devices with equal work take similar power."""
    least, most = c.rules.limit("energy_span_ns"), c.rules.limit("power_ratio")
    for repeat in c.repeats if c.devices > 1 else ():
        nodes = start_of(repeat)["nodes"]
        found: list[tuple[float, Event, int]] = []  # watts, the last reading, device
        for node in range(nodes):
            spans = list(_spans_of_steps(repeat, node, int(c.rules.limit("power_lag_ns"))))
            for index in range(c.devices // nodes):
                passed, _, counted, last = _energy(spans, index)
                if last is not None and passed >= least:
                    found.append((counted * 1e6 / passed, last, index))
        found.sort(key=lambda one: one[0])
        if found and found[-1][0] > most * found[0][0]:
            watts, event, index = found[0]
            wanted = f"{found[-1][0] / most:.0f} W or more, as another device took {found[-1][0]:.0f} W"
            yield Fault(event.location(f"devices.{index}.energy_mj"), wanted, f"{watts:.0f} W")


@rule("TELE-015", mode="throughput", kind=WITH_KEY)
def telemetry_sampled(c: Context) -> Iterator[Fault]:
    """Soaks and telemetry tail have a sample in nine of ten seconds: a driver may hang the sampler."""
    if not (c.repeats and c.header["settings"].get("telemetry") and c.reference):
        return
    first = c.repeats[0]
    repeats = int(c.rules.limits["modes"]["throughput"]["repeats"])
    part = min(1.0, len(c.repeats) / repeats)  # a declared run of fewer repeats soaks as much less
    least = int(c.rules.limit("sampled_share") * part * c.rules.limits["telemetry_ns"]) // _NS
    for node in range(start_of(first)["nodes"]):
        sampled = sum(_seconds(repeat.samples(at), node) for repeat in c.repeats for at in ("soak", "tail"))
        if sampled < least:
            location = f"samples of soak and tail, node {node}"
            yield Fault(location, f"samples in at least {least} different seconds", f"in {sampled}")


def _seconds(samples: Sequence[Event], node: int) -> int:
    """The number of seconds, counted from the first sample, in which ``node`` has a sample."""
    times = sorted(event["offset_ns"] for event in samples if event["node"] == node)
    return len({round((time - times[0]) / _NS) for time in times})


def _spans_of_steps(repeat: Repeat, node: int, lag_ns: int) -> Iterator[list[Event]]:
    """The readings of one node during soak, window and tail.

    Without those of the first ``lag_ns``: devices report the mean power of the last second.
    """
    edges = [event for at in ("window_open", "window_close") if (event := repeat.counters(at, node))]
    for at in ("soak", "window", "tail"):
        readings = [event for event in repeat.samples(at) if event["node"] == node]
        readings = sorted(
            readings + (edges if at == "window" else []), key=lambda event: int(event["offset_ns"])
        )
        yield [event for event in readings if event["offset_ns"] >= readings[0]["offset_ns"] + lag_ns]


def _energy(spans: list[list[Event]], index: int) -> tuple[int, float, int, Event | None]:
    """Time in ns, energy in mJ by sampled power and by the counter of one device, and its last reading."""
    passed, sampled, counted, last = 0, 0.0, 0, None
    for span in spans:
        rows = [(event, row) for event in span for row in (event["devices"] or ())[index : index + 1] if row]
        seen = [(event, row) for event, row in rows if None not in (row["energy_mj"], row["power_mw"])]
        for (early, before), (late, after) in pairwise(seen):
            apart, last = late["offset_ns"] - early["offset_ns"], late
            passed += apart
            sampled += apart * (before["power_mw"] + after["power_mw"]) / 2e9
            counted += after["energy_mj"] - before["energy_mj"]
    return passed, sampled, counted, last


@rule("TELE-016", mode="throughput", kind=BENCHMARK)
def memory_grows_as_anonymous(c: Context) -> Iterator[Fault]:
    """In a long window the processes' memory grows by anonymous memory, which the growth metric reads.

    Readers of images may map files instead. As in the metric, the first quarter of the window is left out.
    """
    if c.header["measured_steps"] < _LONG or _reads_images(c):
        return
    most = int(c.rules.limit("mapped_growth_bytes"))
    for repeat in c.repeats:
        for node in range(start_of(repeat)["nodes"]):
            opened, closed = repeat.counters("window_open", node), repeat.counters("window_close", node)
            if opened is None or closed is None:
                continue
            settled = opened["offset_ns"] + (closed["offset_ns"] - opened["offset_ns"]) // 4
            samples = [one for one in repeat.samples("window") if one["node"] == node]
            readings = [*(one for one in samples if one["offset_ns"] >= settled), closed]
            beside = [mapped for one in readings if (mapped := _mapped(one)) is not None]
            if beside and beside[-1] - beside[0] > most:
                wanted = f"at most {most} bytes more beside anonymous_bytes than at a quarter of the window"
                yield Fault(
                    closed.location("processes.rss_bytes"), wanted, f"{beside[-1] - beside[0]} bytes more"
                )


def _reads_images(c: Context) -> bool:
    name = c.spec.DATASETS[c.key.scale]
    return c.real and c.rules.has("datasets", name) and "images" in c.rules.dataset(name)


def _mapped(event: Event) -> int | None:
    """Resident memory that is not anonymous: of mapped files, and shared; None where one is unknown."""
    found = event["processes"]
    known = None if found is None else (found["rss_bytes"], found.get("anonymous_bytes"))
    return None if known is None or None in known else int(known[0] - known[1])
