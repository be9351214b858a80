"""The container image and the limits of a run's workers, as text of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.checker.context import COUNTS_DECLARED, HeaderContext
from suite.log.model import Record
from suite.log.processors import compact_list, processors_in
from suite.log.units import count, quantity
from suite.metrics.machine import at
from suite.rules import load

LIMITS = ("cpus", "cpuset", "memory_bytes", "shm_bytes")
_NAMES = {
    "cpus": "cpus",
    "cpuset": "cpuset",
    "memory_bytes": "memory",
    "shm_bytes": "shm",
    "affinity": "affinity",
}


@dataclass(frozen=True, slots=True)
class ImageSummary:
    """The base container image: its name in the lock, else in the log; empty for native runs."""

    name: str
    closed_ready: bool | None  # None for native runs
    why_not: str = ""


NATIVE = ImageSummary("", None)


def image_of(record: Record) -> ImageSummary:
    """The container image of a run, and whether closed accepts it by the lock of this checkout."""
    image = record.header["image"]
    if image is None:
        return NATIVE
    name = str(image.get("lock") or image["name"])
    try:
        context = HeaderContext(record.header.data, load(str(record.header["rules"]["version"])))
    except ValueError as error:
        return ImageSummary(name, False, str(error))
    if context.locked is None:
        return ImageSummary(name, False, "not in the lock")
    if context.locked["status"] != "resolved":
        return ImageSummary(name, False, f"the lock's entry is {context.locked['status']}")
    if context.published is None:
        return ImageSummary(name, False, "no layers are published for this code")
    return ImageSummary(name, True)


def limits_of(record: Record) -> dict[str, str | int | None]:
    """The limits of the run, by the names of the settings; None where it has none."""
    settings = record.header.data.get("settings", {})
    values = {name: settings.get(name) for name in LIMITS}
    limits: dict[str, str | int | None] = {
        name: value if isinstance(value, str) or type(value) is int else None
        for name, value in values.items()
    }
    affinity = affinity_of(record)
    return limits if affinity is None else {**limits, "affinity": affinity}


def affinity_of(record: Record) -> str | None:
    """The processors that a native worker was restricted to, such as 0-1; None where it was not."""
    if record.header.data.get("runtime") != "native" or not record.repeats:
        return None
    repeat = record.repeats[0]
    outside = repeat.env("outside")
    harness = None if outside is None else at(outside["facts"], "cpu.affinity")
    return restricted(harness, [event["facts"].get("affinity") for event in repeat.envs_of("inside")])


def restricted(harness: object, workers: Sequence[object]) -> str | None:
    """The processors of all ``workers`` if they are others than those of the harness; None if they are equal.

    Each is a list such as ``0-1,4`` from a log; None if one of them is no such list.
    """
    of_harness, of_workers = processors_in(harness), [processors_in(one) for one in workers]
    known = [one for one in of_workers if one is not None]
    if of_harness is None or not workers or len(known) < len(workers):
        return None
    together = frozenset[int]().union(*known)
    return None if together == of_harness else compact_list(together)


def limits_text(record: Record) -> str:
    """The limits of a run as text ("cpus 2, memory 8.00 GiB"); empty without any."""
    return conditions_text(limits_of(record), "native", None)


def counts_of(record: Record) -> str:
    """The repeats and steps of a run that declares other ones than the rules set; empty for other runs."""
    header = record.header.data
    if all(row["rule"] != COUNTS_DECLARED for row in header["differences"]):
        return ""
    return counts_text(header["repeats"], None if record.mode == "quality" else header["measured_steps"])


def counts_text(repeats: int, steps: int | None) -> str:
    """Repeats, and steps of a window (None: a quality run), as text."""
    return count(repeats, "repeat") + ("" if steps is None else f" of {steps:,} steps")


def conditions_text(
    limits: Mapping[str, str | int | None], loader: str, storage: str | None, counts: str = ""
) -> str:
    """The conditions of a row beside its key: the limits, and what else is not the default.

    That are the loader, the storage format, and (``counts``) the numbers of repeats and steps.

    ``limits`` has the names of the settings. The text leaves out the shared memory: it does not change the
    speed of a run, and a run that has too little of it fails.
    """
    parts = []
    for name, value in limits.items():
        if value is not None and name != "shm_bytes":
            parts.append(f"{_NAMES[name]} {quantity(value, 'bytes') if isinstance(value, int) else value}")
    if loader != "native":
        parts.append(f"loader {loader}")
    if storage not in (None, "files"):
        parts.append(f"from {storage}")
    if counts:
        parts.append(counts)
    return ", ".join(parts)
