"""The limits of a worker: their options, and their values as the settings of a log have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

from suite.log.processors import compact_list, expand_list

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Hydra reads +8, 8_000 and 8e9 as numbers.
_SIZE = re.compile(r"\+?(\d[\d_]*(?:\.\d+)?(?:e\+?\d\d?)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_CPUSET = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")


def cpus_of(value: object) -> str | None:
    """Processors' time, at least 0.01, such as ``2`` or ``1.5``; None for another value."""
    try:
        count = Decimal(str(value))
        if not count.is_finite() or count < Decimal("0.01"):
            return None
        # The kernel's quota of a period of 100 ms has three decimal places.
        return format(count.quantize(Decimal("0.001")).normalize(), "f")
    except InvalidOperation:
        return None


def cpuset_of(value: object) -> str | None:
    """Processors such as ``0-3`` or ``[0, 1]``, a list or its text; None for another value."""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = re.sub(r"[ '\"]", "", text.removeprefix("[").removesuffix("]"))
    return (compact_list(expand_list(text)) or None) if _CPUSET.fullmatch(text) else None


def bytes_of(value: object) -> int | None:
    """Bytes, at least 1, such as ``65536``, ``8g`` or ``1.5GiB`` (units of 1024); None for another value."""
    match = _SIZE.fullmatch(str(value).strip())
    if match is None:
        return None
    return int(Decimal(match[1].replace("_", "")) * _UNITS[match[2].lower()]) or None


# Option of ``runtime`` -> setting in a log, and what reads its value.
LIMITS: Mapping[str, tuple[str, Callable[[object], str | int | None]]] = {
    "cpus": ("cpus", cpus_of),
    "cpuset": ("cpuset", cpuset_of),
    "memory": ("memory_bytes", bytes_of),
    "shm_size": ("shm_bytes", bytes_of),
}
