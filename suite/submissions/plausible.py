"""Values of a system description that fit the schema and cannot be true: another unit, a reminder, too few.

Only what a person states is examined. A fact of the log is taken as it is, because nobody could correct it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from suite.log.model import Record
from suite.log.safe import safe
from suite.metrics.machine import at, facts, machine_facts
from suite.submissions.system import FieldDefect, meaning

# A machine that runs a benchmark has more. A smaller number is in another unit, such as GB or W.
_LEAST = {
    "host_processor_frequency": 100,
    "host_memory_capacity": 2**30,
    "host_storage_capacity": 10**8,
    "accelerator_frequency": 100,
    "accelerator_memory_capacity": 2**30,
    "accelerator_power_limit": 1000,
    "accelerator_clocks.compute_max_mhz": 100,
    "accelerator_clocks.memory_max_mhz": 100,
}
_REMINDER = re.compile(r"(todo|tbd|fixme|xxx+|placeholder|fill in|to be (determined|filled in))(?![\w-])")
_NAMES = ("system_name", "host_processor_model_name", "accelerator_model_name")
_NO_NAME = ("none", "unknown", "n/a", "na", "null")
_COUNTED = re.compile(r"\b(\d+) ?x ?([A-Za-z][\w-]*)")  # 4x H100


def implausible(record: Record, description: Mapping[str, Any]) -> Iterator[FieldDefect]:
    """The faults of what a person states in ``description``, which fits the schema."""
    known, _ = machine_facts(record)
    least = _used(record)
    for name, value in description.items():
        if name in known or value is None:
            continue
        if (fault := fault_of(name, value)) is not None:
            yield fault
        elif name in least and value < least[name]:
            yield FieldDefect(
                name, f"at least {least[name]}, which the run used ({meaning(name)})", str(value)
            )
    yield from _counted(description)


def fault_of(name: str, value: Any) -> FieldDefect | None:
    """The fault of one value by itself; None if it can be true."""
    if isinstance(value, Mapping):
        inner = (_fault(f"{name}.{part}", one, meaning(name)) for part, one in value.items())
        return next(filter(None, inner), None)
    return _fault(name, value, meaning(name))


def _fault(name: str, value: Any, about: str) -> FieldDefect | None:
    if isinstance(value, str):
        text = value.strip().casefold()
        empty = not any(map(str.isalnum, text)) or _REMINDER.match(text) or value == about
        if empty or (name in _NAMES and text in _NO_NAME):
            return FieldDefect(name, about, safe(repr(value)))
    elif type(value) is int and value < _LEAST.get(name, value):
        return FieldDefect(name, f"at least {_LEAST[name]} ({about})", str(value))
    return None


def _used(record: Record) -> dict[str, int]:
    """The least values of the machine by what the run used, by name."""
    reports = [report.data for repeat in record.repeats for report in repeat.reports]
    used = {
        "host_memory_capacity": [at(report, "memory.peak_rss_bytes") for report in reports],
        "accelerator_memory_capacity": [at(report, "memory.peak_device_bytes") for report in reports],
        "host_storage_capacity": [at(record.header.data, "dataset.bytes")],
    }
    if record.conversion is None and at(facts(record, "inside"), "framework.device") not in (None, "cpu"):
        used["accelerators_per_node"] = [-(-record.key.devices // record.key.nodes)]
    return {
        name: max(numbers)
        for name, values in used.items()
        if (numbers := [value for value in values if type(value) is int])
    }


def _counted(description: Mapping[str, Any]) -> Iterator[FieldDefect]:
    """A name such as "2x H100" of a system of which the run used more accelerators."""
    number, model = description["accelerators_per_node"], description["accelerator_model_name"] or ""
    for count, word in _COUNTED.findall(description["system_name"]):
        if word.casefold() in model.casefold().split() and int(count) < number:
            expected = f"at least {number}x {word}, as accelerators_per_node"
            yield FieldDefect("system_name", expected, f"{count}x {word}")
