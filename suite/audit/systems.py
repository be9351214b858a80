"""Compares the systems and the software of two runs: decides whether bits and times are comparable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.audit.items import ComparedItem, exactly
from suite.log.model import Record, Repeat
from suite.metrics.machine import devices

SAME, SAME_MODEL, OTHER = "same machine", "same model", "other"
_LIBRARIES = ("version", "cuda", "cudnn", "device", "fast_path", "tf32", "threads")
_CPU = ("vendor", "flags")
_CPU_MODEL = ("vendor", "model", "architecture", "sockets", "cores", "threads")


def _facts(repeat: Repeat, side: str) -> Mapping[str, Any]:
    event = repeat.env(side)
    found: Mapping[str, Any] = {} if event is None else event["facts"]
    return found


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, Mapping) else {}


def _libraries(repeat: Repeat) -> dict[str, Any]:
    inside = _facts(repeat, "inside")
    framework = _part(inside, "framework")
    found = {f"framework.{name}": framework.get(name) for name in _LIBRARIES}
    return found | {name: inside.get(name) for name in ("python", "numpy", "decoder", "custom_pair")}


def software(wanted: Repeat, found: Repeat) -> ComparedItem:
    """Compare versions and flags that the workers reported; reports the first that differs."""
    ours, theirs = _libraries(found), _libraries(wanted)
    for name, value in theirs.items():
        if ours[name] != value:
            return exactly("software", f"{name} {value}", f"{name} {ours[name]}", wanted.index)
    summary = f"{theirs['framework.version']}, Python {theirs['python']}, numpy {theirs['numpy']}"
    return exactly("software", summary, summary, wanted.index)


def image_as_started(wanted: Repeat, found: Repeat) -> Iterator[ComparedItem]:
    """Compare the container images that the engines reported, where both did."""
    images = [_part(_part(_facts(one, "outside"), "container"), "image") for one in (wanted, found)]
    for name in ("config_digest", "diff_ids", "file_digest"):
        theirs, ours = (image.get(name) for image in images)
        if theirs is not None and ours is not None:
            yield exactly("image as started", theirs, ours, wanted.index)
            return


def _modules(repeat: Repeat) -> str | None:
    return str(repeat.reports[0]["modules_digest"]) if repeat.reports else None


def bitwise(wanted: Repeat, found: Repeat) -> str | None:
    """Why the timed steps of two repeats must agree bit for bit; None where they need not.

    The suite does not make timed steps deterministic. But on one thread of the same processors, with the same
    code and libraries, the order of every sum is fixed.
    """
    if not _one_class(wanted, found):
        return None
    framework = _part(_facts(found, "inside"), "framework")
    if framework.get("device") == "cpu" and framework.get("threads") == 1:
        return "one thread of the same processor, same code, same libraries"
    return None


def same_bits(submitted: Record, again: Record) -> str | None:
    """Why deterministic steps of two runs must agree bit for bit; None where they need not."""
    if not submitted.repeats or not again.repeats:
        return None
    wanted, found = submitted.repeats[0], again.repeats[0]
    if not _one_class(wanted, found) or submitted.header["code_digest"] != again.header["code_digest"]:
        return None
    return "deterministic operations, same device, same code, same libraries"


def _one_class(wanted: Repeat, found: Repeat) -> bool:
    return (
        _libraries(wanted) == _libraries(found)
        and _modules(wanted) == _modules(found)
        and _hardware(wanted) == _hardware(found)
    )


def _hardware(repeat: Repeat) -> tuple[Any, ...]:
    """The hardware facts that decide the last bit: instruction set, device and driver."""
    outside, inside = _facts(repeat, "outside"), _facts(repeat, "inside")
    cpu, framework = _part(outside, "cpu"), _part(inside, "framework")
    device = [framework.get(name) for name in ("device_name", "capability")]
    driver = _part(outside, "accelerators").get("driver")
    return ([cpu.get(name) for name in _CPU], device, driver)


def kinship(submitted: Record, again: Record) -> tuple[str, str]:
    """Whether two runs had the same machine, another of its model, or another kind; and the reason.

    Accelerators are compared by their hashed UUIDs. Processors have none, and are compared by the size of the
    memory and the kernel.
    """
    if not submitted.repeats or not again.repeats:
        return OTHER, "a run has no repeats"
    outside = [_facts(record.repeats[0], "outside") for record in (submitted, again)]
    accelerators = [devices(record) for record in (submitted, again)]
    names = [[str(device.get("name")) for device in listed] for listed in accelerators]
    if names[0] != names[1]:
        return OTHER, f"expected {_listed(names[0])}, found {_listed(names[1])}"
    cpus = [_part(facts, "cpu") for facts in outside]
    for name in _CPU_MODEL:
        theirs, ours = (cpu.get(name) for cpu in cpus)
        if theirs != ours:
            return OTHER, f"cpu.{name}: expected {theirs}, found {ours}"
    if names[0]:
        uuids = [[device.get("uuid") for device in listed] for listed in accelerators]
        known = None not in uuids[0]
        return (SAME, "the same devices") if known and uuids[0] == uuids[1] else (SAME_MODEL, "other devices")
    rest = [
        (_part(facts, "memory").get("total_bytes"), _part(facts, "kernel").get("release"))
        for facts in outside
    ]
    return (SAME, "no accelerator") if rest[0] == rest[1] else (SAME_MODEL, "other memory or kernel")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "no accelerator"


def energy_per_step(record: Record, least_ns: int) -> tuple[float | None, str]:
    """Mean energy (mJ) of all devices per measured step; or None and the reason.

    Windows shorter than ``least_ns`` are too short for counters that are updated every 20 to 100 ms.
    """
    total, steps = 0, 0
    for repeat in record.repeats:
        pairs = [
            (one, other) for one, other in repeat.counter_pairs() if one is not None and other is not None
        ]
        if repeat.end is None or not pairs:
            continue
        counted = [
            device
            for opened, closed in pairs
            for device in zip(opened["devices"] or (), closed["devices"] or (), strict=False)
        ]
        if not counted:
            return None, "the counters list no accelerator"
        if int(repeat.window_ns or 0) < least_ns:
            return None, f"a window under {least_ns / 1e9:g} s is too short for the counter"
        for before, after in counted:
            counts = [None if one is None else one.get("energy_mj") for one in (before, after)]
            if counts[0] is None or counts[1] is None:
                return None, "a device reports no energy"
            total += int(counts[1]) - int(counts[0])
        steps += int(repeat.end["steps"])
    return (total / steps, "") if steps else (None, "no completed repeat")
