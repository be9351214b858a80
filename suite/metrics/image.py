"""In what a run's workers ran: the image and the limits, as tables show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suite.checker.context import HeaderContext
from suite.log.model import Record
from suite.log.units import quantity
from suite.rules import load

LIMITS = ("cpus", "cpuset", "memory_bytes", "shm_bytes")
_WORDS = {"cpus": "cpus", "cpuset": "cpuset", "memory_bytes": "memory", "shm_bytes": "shm"}


@dataclass(frozen=True, slots=True)
class ImageSummary:
    """The base image by its name in the lock, else as the log names it; empty for native runs."""

    name: str
    closed_ready: bool | None  # None for native runs
    why_not: str = ""


NATIVE = ImageSummary("", None)


def image_of(record: Record) -> ImageSummary:
    """The image of a run, and whether closed would take it: by the checker's lock, not by the log."""
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
    """The limits that the run was made under, by the names of the settings; None where there is none."""
    settings = record.header.data.get("settings", {})
    found: dict[str, str | int | None] = {}
    for name in LIMITS:
        value = settings.get(name)
        found[name] = value if isinstance(value, str) or type(value) is int else None
    return found


def limits_text(record: Record) -> str:
    """The limits in words ("cpus 2, memory 8.00 GiB"); empty without any.

    Shared memory counts only where a workload lacks it, which ends the run: it is not said here.
    """
    return words_of(limits_of(record))


def apart(limits: Mapping[str, str | int | None], loader: str, form: str | None) -> str:
    """What sets a row apart beside its key: limits, and a loader or a form of images that is not usual."""
    read = [f"loader {loader}"] if loader != "native" else []
    read += [f"from {form}"] if form not in (None, "files") else []
    return ", ".join([words for words in (words_of(limits), *read) if words])


def words_of(limits: Mapping[str, str | int | None]) -> str:
    """Limits by the names of the settings, in the words of :func:`limits_text`."""
    parts = []
    for name, value in limits.items():
        if value is not None and name != "shm_bytes":
            shown = quantity(value, "bytes") if isinstance(value, int) else value
            parts.append(f"{_WORDS[name]} {shown}")
    return ", ".join(parts)
