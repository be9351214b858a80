"""DEV: the accelerators are those that the log names, and have default settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from suite.checker.context import Context, Fault, frameworks_of, rule
from suite.contract import BENCHMARK
from suite.log.model import Event, Repeat

_SLICE = " MIG "
# Why the harness itself could not read the kernel's list of processors (suite/telemetry/reading.py).
UNREADABLE = ("not exposed by this kernel", "permission denied", "not supported by this kernel")
_OFFSETS = ("sm_clock_offset_mhz", "memory_clock_offset_mhz")
_CLOCKS = {"sm_clock_mhz": "max_sm_clock_mhz", "memory_clock_mhz": "max_memory_clock_mhz"}


def _listed_devices(c: Context) -> Iterator[tuple[Event, int, Mapping[str, Any]]]:
    """(env event, index, facts) of each device in the outside facts of the first repeat that has some.

    ENV-001 compares the facts of the other repeats with these.
    """
    for repeat in c.repeats:
        if found := list(devices_of(repeat)):
            yield from found
            return


def devices_of(repeat: Repeat) -> Iterator[tuple[Event, int, Mapping[str, Any]]]:
    """(env event, index, facts) of each device in the outside facts, whose types no schema restricts."""
    for event in repeat.envs_of("outside"):
        found = event["facts"].get("accelerators")
        rows = found.get("devices") if isinstance(found, Mapping) else None
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, Mapping):
                yield event, index, row


def _unsliced(name: Any) -> Any:
    """The name of the whole device: NVIDIA and the frameworks add " MIG 1g.10gb" to that of a slice."""
    return name.partition(_SLICE)[0] if isinstance(name, str) else name


def _answered(device: Mapping[str, Any] | None) -> bool:
    """Whether NVML gave any reading of the device."""
    known = () if device is None else [name for name, found in device.items() if found is not None]
    return bool({*known} - {"uuid", "throttle_ns"})


def _location(event: Event, index: int, name: str) -> str:
    return event.location(f"facts.accelerators.devices.{index}.{name}")


def _number(row: Mapping[str, Any], name: str) -> int | None:
    """The fact ``name`` if it is an integer; the schema does not restrict the types of facts."""
    found = row.get(name)
    return found if type(found) is int else None


@rule("DEV-001")
def default_power_limit(c: Context) -> Iterator[Fault]:
    """The power limit is the default."""
    for event, index, row in _listed_devices(c):
        limit, default = _number(row, "power_limit_mw"), _number(row, "power_limit_default_mw")
        if limit is not None and default is not None and limit != default:
            yield Fault(_location(event, index, "power_limit_mw"), f"{default}, the default", limit)


def _overclocked(c: Context) -> Iterator[Fault]:
    """Clock offsets above zero, and sampled clocks above the device's maximum."""
    maxima: defaultdict[int, list[dict[str, int | None]]] = defaultdict(list)  # by node
    for event, index, row in _listed_devices(c):
        for name in _OFFSETS:
            offset = _number(row, name)
            if offset is not None and offset > 0:
                yield Fault(_location(event, index, name), "0", offset)
        maxima[event["node"]].append({name: _number(row, limit) for name, limit in _CLOCKS.items()})
    for repeat in c.repeats:
        for event in repeat.telemetry:
            of_node = zip(event["devices"] or (), maxima[event["node"]], strict=False)
            for index, (device, highest) in enumerate(of_node):
                for name, limit in highest.items():
                    found = None if device is None else device[name]
                    if found is not None and limit is not None and found > limit:
                        yield Fault(event.location(f"devices.{index}.{name}"), f"at most {limit}", found)


@rule("DEV-002")
def not_overclocked(c: Context) -> Iterator[Fault]:
    """In closed no device is overclocked."""
    if c.division == "closed":
        yield from _overclocked(c)


@rule("DEV-003")
def overclocking_flagged(c: Context) -> Iterator[Fault]:
    """Outside closed an overclocked device is flagged."""
    if c.division != "closed":
        yield from _overclocked(c)


@rule("DEV-004")
def ecc_enabled(c: Context) -> Iterator[Fault]:
    """Error correction of the device's memory, where it exists, is enabled."""
    for event, index, row in _listed_devices(c):
        if row.get("ecc") is False:
            yield Fault(_location(event, index, "ecc"), "true", "false")


@rule("DEV-005")
def device_not_partitioned(c: Context) -> Iterator[Fault]:
    """The device is not partitioned into instances."""
    for event, index, row in _listed_devices(c):
        if row.get("mig") is True or _SLICE in str(row.get("name")):
            yield Fault(_location(event, index, "mig"), "false", "true")


@rule("DEV-006")
def device_agrees_with_table(c: Context) -> Iterator[Fault]:
    """A device of the table has the PCI id and the memory that the table gives for its name.

    A device with a PCI id of the table, or a name that looks like one, has exactly a name of the table.
    """
    for event, index, row in _listed_devices(c):
        name, pci, memory = _unsliced(row.get("name")), row.get("pci_device"), _number(row, "memory_bytes")
        sliced = name != row.get("name")  # DEV-005 flags it; a slice has a part of the memory
        identifiers = [one for one in (name, pci) if isinstance(one, str)]
        entry = next(filter(None, map(c.rules.device, identifiers)), None)
        if entry is None or "pci_devices" not in entry:
            continue
        known = " or ".join(entry["names"])
        if isinstance(name, str) and name not in entry["names"]:
            yield Fault(_location(event, index, "name"), f"{known}, as in the device table", name)
        if pci is not None and pci not in entry["pci_devices"]:
            wanted = " or ".join(entry["pci_devices"])
            yield Fault(_location(event, index, "pci_device"), f"{wanted} of {known}", pci)
        low, high = (float(limit) for limit in entry["memory_bytes"])
        if memory is not None and not (0 if sliced else low) <= memory <= high:
            location = _location(event, index, "memory_bytes")
            yield Fault(location, f"from {low:.0f} to {high:.0f} of {known}", memory)


@rule("DEV-007")
def devices_agree(c: Context) -> Iterator[Fault]:
    """Facts, counters and framework name the same devices, at least as many as the key.

    The facts may list devices that the run does not use; the counters name those that it uses.
    """
    listed = list(_listed_devices(c))
    if listed and len(listed) < c.devices:
        location = listed[0][0].location("facts.accelerators.devices")
        yield Fault(location, f"{c.devices} devices, as in the key", len(listed))
        return
    for event, index, row in listed:
        name = row.get("name")
        if name is not None and not isinstance(name, str):
            yield Fault(_location(event, index, "name"), "a name", name)
    names = [_unsliced(row.get("name")) for *_, row in listed]  # no set: a fact need not be hashable
    for repeat in c.repeats if listed else ():
        for _, inside, described in frameworks_of(repeat):
            found = described.get("device_name")
            if found is not None and _unsliced(found) not in names:
                location = inside.location("facts.framework.device_name")
                yield Fault(location, " or ".join(sorted(set(map(str, names)))), found)
        for event in repeat.telemetry:
            uuids = [row.get("uuid") for env, _, row in listed if env["node"] == event["node"]]
            for index, device in enumerate(event["devices"] or ()):
                if device is not None and uuids and None not in uuids and device["uuid"] not in uuids:
                    wanted = " or ".join(map(str, uuids))
                    yield Fault(
                        event.location(f"devices.{index}.uuid"), f"{wanted}, as in the facts", device["uuid"]
                    )


@rule("DEV-008")
def devices_reported(c: Context) -> Iterator[Fault]:
    """A run on a GPU reports its devices: rules about devices need facts and counters."""
    if c.header["settings"].get("device") != "cuda":  # ENV-012 compares it with the framework's device
        return
    for repeat in c.repeats:
        for outside in repeat.envs_of("outside"):
            if not any(event is outside for event, _, _ in devices_of(repeat)):
                yield Fault(outside.location("facts.accelerators"), "the devices of the run", "none")
        for event in repeat.telemetry:
            if event["source"] == "counters" and not any(map(_answered, event["devices"] or ())):
                yield Fault(event.location("devices"), "counters of the devices", "none")


@rule("DEV-009")
def device_listed(c: Context) -> Iterator[Fault]:
    """The device table has every GPU by name or PCI id: other GPUs only have generic limits."""
    for event, index, row in _listed_devices(c):
        identifiers = [one for one in (row.get("name"), row.get("pci_device")) if isinstance(one, str)]
        if not any(map(c.rules.device, identifiers)):
            found = ", PCI id ".join(identifiers) if identifiers else "a device without name and PCI id"
            yield Fault(_location(event, index, "name"), "a device of the device table", found)


@rule("DEV-010")
def processor_listed(c: Context) -> Iterator[Fault]:
    """At reference scale a processor in the place of a device has limits per core only."""
    if c.on_processor and c.reference and c.kind == BENCHMARK and c.repeats:
        for event in c.repeats[0].envs_of("outside")[:1]:
            cpu = event["facts"].get("cpu")
            found = cpu.get("model") if isinstance(cpu, Mapping) else None
            yield Fault(event.location("facts.cpu.model"), "a device of the device table", found)


def _unknown_processors(c: Context) -> Iterator[tuple[Event, str, Any]]:
    """(env event, name, value) of each number of processors that is none, by node.

    ENV-001 compares the facts of the other repeats with those of the first.
    """
    for event in c.repeats[0].envs_of("outside") if c.repeats else ():
        cpu = event["facts"].get("cpu")
        for name in ("cores", "threads"):
            found = cpu.get(name) if isinstance(cpu, Mapping) else cpu
            if type(found) is not int or found < 1:
                yield event, name, found


@rule("DEV-015")
def processors_reported(c: Context) -> Iterator[Fault]:
    """Every machine reports its cores and threads, which limit what it computes: PHYS-001, TELE-010."""
    for event, name, found in _unknown_processors(c):
        yield Fault(event.location(f"facts.cpu.{name}"), "a number of processors", f"{found}")


@rule("DEV-016")
def processors_unreadable(c: Context) -> Iterator[Fault]:
    """In a run on processors the number of them is unknown only if the harness could not read it."""
    for event, name, found in _unknown_processors(c) if c.on_processor else ():
        reason = event["reasons"].get(f"cpu.{name}")
        if found is not None or reason not in UNREADABLE:
            wanted = f"a number of processors, or null because: {' or '.join(UNREADABLE)}"
            yield Fault(event.location(f"facts.cpu.{name}"), wanted, f"{found}, {reason or 'no reason'}")


@rule("DEV-011")
def no_gpu_in_a_run_on_processors(c: Context) -> Iterator[Fault]:
    """A run on processors reports neither facts nor counters of a GPU."""
    if not c.on_processor:
        return
    for event, index, row in _listed_devices(c):
        yield Fault(_location(event, index, "name"), "no device in a run on processors", row.get("name"))
    for repeat in c.repeats:
        for report, inside, described in frameworks_of(repeat):
            for name in ("device_name", "capability"):
                if described.get(name) is not None:
                    location = inside.location(f"facts.framework.{name}")
                    yield Fault(location, "null in a run on processors", described[name])
            peak = None if report["memory"] is None else report["memory"]["peak_device_bytes"]
            if peak is not None:
                location = report.location("memory.peak_device_bytes")
                yield Fault(location, "null in a run on processors", peak)
        for event in repeat.telemetry:
            if any(device is not None for device in event["devices"] or ()):
                yield Fault(event.location("devices"), "none in a run on processors", "counters of a device")


@rule("DEV-012")
def devices_distinct(c: Context) -> Iterator[Fault]:
    """No two devices of a node have one UUID or one address on the PCI bus."""
    seen: set[tuple[int, str, object]] = set()
    for event, index, row in _listed_devices(c):
        for name in ("uuid", "pci_bus"):
            found = (event["node"], name, str(row.get(name)))
            if row.get(name) is not None and found in seen:
                yield Fault(_location(event, index, name), f"a {name} of no other device", row[name])
            seen.add(found)


@rule("DEV-013")
def memory_of_the_device(c: Context) -> Iterator[Fault]:
    """Memory in use on a device, and a rank's peak, do not exceed the memory that the device states."""
    stated = [(event["node"], _number(row, "memory_bytes")) for event, _, row in _listed_devices(c)]
    for repeat in c.repeats:
        for event in repeat.telemetry:
            of_node = [memory for node, memory in stated if node == event["node"]]
            for index, (device, memory) in enumerate(zip(event["devices"] or (), of_node, strict=False)):
                used = None if device is None else device["memory_used_bytes"]
                if used is not None and memory is not None and used > memory:
                    location = event.location(f"devices.{index}.memory_used_bytes")
                    yield Fault(location, f"at most {memory}, the memory of the device", used)
        for report, (_, memory) in zip(repeat.reports, stated, strict=False):
            peak = None if report["memory"] is None else report["memory"]["peak_device_bytes"]
            if peak is not None and memory is not None and peak > memory:
                location = report.location("memory.peak_device_bytes")
                yield Fault(location, f"at most {memory}, the memory of the device", peak)


@rule("DEV-014", kind=BENCHMARK)
def memory_for_the_model(c: Context) -> Iterator[Fault]:
    """The peak of a rank's device memory has room for the weights and the state of the optimiser."""
    least = _model_bytes(c)
    for report in c.reports:
        peak = None if report["memory"] is None else report["memory"]["peak_device_bytes"]
        if peak is not None and peak < least:
            location = report.location("memory.peak_device_bytes")
            yield Fault(location, f"at least {least} for weights and optimiser state", peak)


def _model_bytes(c: Context) -> int:
    """Bytes of the weights, and in training of one moment (momentum) or two (beta2) of the optimiser."""
    count = sum(one.size for one in c.spec.parameters(c.spec.dimensions(c.key.scale, c.key.variant)))
    if c.key.phase == "infer":
        return count * (2 if c.key.precision in ("bf16", "fp16") else 4)
    hyper = c.header["hyper"]
    moments = 2 if "beta2" in hyper else int(_is_used(hyper.get("momentum", "0")))
    return 4 * count * (1 + moments)


def _is_used(momentum: str) -> bool:
    """Whether a momentum is above 0; the schema restricts no hyperparameter to numbers."""
    try:
        return float(momentum) > 0
    except ValueError:
        return True  # DIV-002 reports it
