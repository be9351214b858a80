"""Facts of the machine that a log contains, by the names of the system description.

All facts come from the header and the ``env`` events of the first repeat; the checker requires that all
repeats agree. A fact that is null in the log is left out: the submitter states it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suite.log.model import Record

_LONGEST = 300
_NO_ACCELERATOR = "the run used no accelerator"
ACCELERATOR_NAMES = (
    "accelerator_model_name",
    "accelerator_host_interconnect",
    "accelerator_frequency",
    "accelerator_on-chip_memories",
    "accelerator_memory_configuration",
    "accelerator_memory_capacity",
    "accelerator_interconnect",
    "accelerator_interconnect_topology",
    "accelerator_clocks",
    "accelerator_ecc",
    "accelerator_power_limit",
    "host_driver",
    "compat_driver",
)
Facts = dict[str, Any]


def at(data: Any, path: str) -> Any:
    """The value at a dotted path of nested mappings; None if any part is missing, null or not a mapping."""
    for name in path.split("."):
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def facts(record: Record, side: str) -> Mapping[str, Any]:
    """The facts of the first ``env`` event of side "outside" or "inside"; empty without one."""
    for repeat in record.repeats:
        event = repeat.env(side)
        if event is not None:
            return dict(event.data["facts"])
    return {}


def identity(outside: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a machine, of the facts of side "outside": a log contains no host name.

    Processor model, numbers of cores and threads, size of the memory, hashed UUIDs of the accelerators.
    """
    listed = at(outside, "accelerators.devices")
    uuids = sorted(str(at(device, "uuid")) for device in listed) if isinstance(listed, list) else []
    names = ("cpu.model", "cpu.cores", "cpu.threads", "memory.total_bytes")
    return {**{name: at(outside, name) for name in names}, "accelerators": uuids}


def devices(record: Record) -> Sequence[Mapping[str, Any]]:
    """The facts of each accelerator of the run; empty for a run on CPUs."""
    listed = at(facts(record, "outside"), "accelerators.devices")
    return [device for device in listed if isinstance(device, Mapping)] if isinstance(listed, list) else []


def storage_text(record: Record) -> str:
    """The source and destination storage of a conversion as text; empty for other runs."""
    parts = []
    for name, preposition in (("source", "from"), ("destination", "to")):
        storage = at(facts(record, "outside"), f"storage.{name}")
        if isinstance(storage, Mapping):
            rotational = storage.get("rotational")
            kind = "of unknown kind" if rotational is None else "rotating" if rotational else "not rotating"
            model = storage.get("disk") or "a disk without a model name"
            file_system = storage.get("filesystem") or "an unknown file system"
            parts.append(f"{preposition} {file_system} on {model} ({kind})")
    return ", ".join(parts)


def device_name(record: Record) -> str:
    """The model of the accelerators, else of the CPU; empty if unknown."""
    accelerators = devices(record)
    name = _shared(accelerators, "name") if accelerators else _text(at(facts(record, "outside"), "cpu.model"))
    return name or ""


def machine_facts(record: Record) -> tuple[Facts, dict[str, str]]:
    """(values by name, reasons by name of correct null values) of the system description."""
    outside, inside = facts(record, "outside"), facts(record, "inside")
    values: Facts = {"division": record.division, **_host(outside), **_software(record, outside, inside)}
    reasons: dict[str, str] = {}
    values["number_of_nodes"] = 1 if record.conversion is not None else record.key.nodes
    image = record.header["image"]
    digest = None if image is None else image["manifest_digest"] or image["index_digest"]
    if image is None:
        reasons["container_digest"] = "the workers ran natively, without a container"
    elif digest is None:
        reasons["container_digest"] = "the log names the container image by a tag alone, without a digest"
    else:
        values["container_digest"] = digest
    accelerators = devices(record)
    if accelerators:
        values |= {"accelerators_per_node": len(accelerators), **_accelerators(accelerators)}
        values["host_driver"] = _text(at(outside, "accelerators.driver"))
    elif at(outside, "accelerators.devices") == [] or at(inside, "framework.device") == "cpu":
        values["accelerators_per_node"] = 0
        reasons |= dict.fromkeys(ACCELERATOR_NAMES, _NO_ACCELERATOR)
    # Otherwise the driver's library was missing: the facts are unknown, and the submitter states them.
    return {name: value for name, value in values.items() if value is not None}, reasons


def _host(outside: Mapping[str, Any]) -> Facts:
    sockets, cores = _number(outside, "cpu.sockets"), _number(outside, "cpu.cores")
    frequency = _number(outside, "cpu.max_frequency_khz")
    return {
        "host_processors_per_node": sockets,
        "host_processor_model_name": _text(at(outside, "cpu.model")),
        "host_processor_core_count": (cores // sockets or None) if cores and sockets else None,
        "host_processor_vcpu_count": _number(outside, "cpu.threads"),
        "host_processor_frequency": (frequency // 1000 or None) if frequency else None,
        "host_memory_capacity": _number(outside, "memory.total_bytes"),
    }


def _software(record: Record, outside: Mapping[str, Any], inside: Mapping[str, Any]) -> Facts:
    version = _text(at(inside, "framework.version"))
    stack = {
        "python": _text(at(inside, "python")),
        "numpy": _text(at(inside, "numpy")),
        "cuda": _text(at(inside, "framework.cuda")),
        "cudnn": _text(at(inside, "framework.cudnn")),
        "libc": _text(at(outside, "kernel.libc")),
    }
    distribution, kernel = (_text(at(outside, f"kernel.{name}")) for name in ("distribution", "system"))
    named = [text for text in (distribution, kernel, _text(at(outside, "kernel.release"))) if text]
    return {
        "framework": _text(f"{record.subject.framework} {version}") if version else None,
        "other_software_stack": {name: text for name, text in stack.items() if text} or None,
        "operating_system": _text(" ".join(named)),
    }


def _accelerators(devices: Sequence[Mapping[str, Any]]) -> Facts:
    frequency, memory_clock = _equal(devices, "max_sm_clock_mhz"), _equal(devices, "max_memory_clock_mhz")
    generation, width = _equal(devices, "pcie_generation_max"), _equal(devices, "pcie_width")
    links = _equal(devices, "nvlink_links")
    clocks = {"compute_max_mhz": frequency, "memory_max_mhz": memory_clock, "offsets": _offsets(devices)}
    return {
        "accelerator_model_name": _shared(devices, "name"),
        "accelerator_host_interconnect": f"PCIe {generation}.0 x{width}" if generation and width else None,
        "accelerator_frequency": frequency,
        "accelerator_memory_capacity": _equal(devices, "memory_bytes"),
        "accelerator_interconnect": f"NVLink, {links} links up" if links else None,
        "accelerator_clocks": None if None in clocks.values() else clocks,
        "accelerator_ecc": _ecc(devices),
        "accelerator_power_limit": _equal(devices, "power_limit_mw"),
    }


def _ecc(devices: Sequence[Mapping[str, Any]]) -> str | None:
    states = [device.get("ecc") for device in devices]
    if all(state is True for state in states):
        return "enabled"
    return "disabled" if all(state is False for state in states) else None


def _offsets(devices: Sequence[Mapping[str, Any]]) -> str:
    names = ("sm_clock_offset_mhz", "memory_clock_offset_mhz")
    values = [device.get(name) for device in devices for name in names]
    if not all(type(value) is int for value in values):
        return "unknown"
    return "set" if any(values) else "none"


def _number(data: Mapping[str, Any], path: str) -> int | None:
    """A positive integer of the facts, which no schema checks; None for any other value."""
    value = at(data, path)
    return value if type(value) is int and value > 0 else None


def _equal(devices: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """The number that all devices share; None if they differ or one lacks it."""
    values = {_number(device, name) for device in devices}
    return values.pop() if len(values) == 1 else None


def _shared(devices: Sequence[Mapping[str, Any]], name: str) -> str | None:
    known = sorted({text for device in devices if (text := _text(device.get(name)))})
    return _text(f"mixed: {', '.join(known)}") if len(known) > 1 else known[0] if known else None


def _text(value: Any) -> str | None:
    """A fact as text of a system description: printable ASCII, trimmed; None if it is empty."""
    if not isinstance(value, str | int):
        return None
    printable = "".join(c if c.isascii() and c.isprintable() else "?" for c in str(value))
    return printable.strip()[:_LONGEST].strip() or None
