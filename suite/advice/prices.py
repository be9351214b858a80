"""The user's price file: machines with their price per hour, a currency, a date and a source.

The columns are those of SkyPilot's catalogue (``InstanceType,AcceleratorName,AcceleratorCount,vCPUs,
MemoryGiB,Price``, optionally ``Region`` and ``GpuInfo``), and ``currency,retrieved,source``. Prices are of
the whole machine on demand; spot prices are not read, because they change by the hour.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path

from suite.log.safe import safe

COLUMNS = (
    *("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price"),
    *("currency", "retrieved", "source"),
)
MAX_AGE_DAYS = 90
_MAX_BYTES = 64 << 20
_CURRENCY = re.compile(r"[A-Z]{3}")
_GPU_MEMORY = re.compile(r"SizeInMiB['\"]?\s*:\s*([0-9]{1,9})")


class PriceError(ValueError):
    """The price file cannot be used; one sentence states where, what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that can be rented. ``price`` is per hour; ``accelerator`` is empty without one."""

    name: str
    accelerator: str
    devices: int
    cpus: float
    memory_bytes: int
    price: float
    region: str = ""
    device_memory_bytes: int | None = None  # of one accelerator, where the file states it

    def has_device(self, name: str, capacity_bytes: int | None) -> bool:
        """Whether its accelerators are of the device ``name`` that a log states ("NVIDIA H200")."""
        if not self.accelerator:
            return False
        if self.device_memory_bytes and capacity_bytes:
            apart = abs(self.device_memory_bytes / capacity_bytes - 1)
            if apart > 0.1:
                return False
        return set(_words(self.accelerator)) <= set(_words(name))


@dataclass(frozen=True, slots=True)
class Prices:
    """A checked price file."""

    machines: tuple[Machine, ...]  # one for each instance type, the cheapest region's
    currency: str
    sources: tuple[str, ...]
    oldest: date
    digest: str  # SHA-256 of the file


def read_prices(path: Path, today: date, max_age_days: int = MAX_AGE_DAYS) -> Prices:
    """The prices in ``path``; PriceError for anything that is not as this module's docstring states."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise PriceError(
            f"{path}: cannot be read: {error.strerror}; docs/sizing.md states the columns, "
            "docs/prices-example.csv is an example"
        ) from error
    if len(data) > _MAX_BYTES:
        raise PriceError(f"{path}: expected at most {_MAX_BYTES >> 20} MiB")
    try:
        rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            raise PriceError(f"{path}: expected the columns {', '.join(COLUMNS)}; {missing[0]} is missing")
        found = [_row(_Line(f"{path}, line {rows.line_num}", row), today, max_age_days) for row in rows]
    except (UnicodeDecodeError, csv.Error) as error:
        raise PriceError(f"{path}: expected CSV in UTF-8, found {safe(error, 120)}") from error
    if not found:
        raise PriceError(f"{path}: expected at least one machine, found only the header")
    currencies = sorted({currency for _, currency, _, _ in found})
    if len(currencies) > 1:
        raise PriceError(
            f"{path}: expected one currency, found {' and '.join(currencies)}: convert one of them"
        )
    cheapest: dict[str, Machine] = {}
    for machine, _, _, _ in found:
        known = cheapest.setdefault(machine.name, machine)
        if machine.price < known.price:
            cheapest[machine.name] = machine
    return Prices(
        tuple(cheapest.values()),
        currencies[0],
        tuple(sorted({source for _, _, _, source in found})),
        min(retrieved for _, _, retrieved, _ in found),
        sha256(data).hexdigest(),
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """One row of the file, with its position for messages."""

    where: str
    values: Mapping[str, str | None]

    def text(self, name: str) -> str:
        return (self.values.get(name) or "").strip()

    def refuse(self, name: str, expected: str) -> PriceError:
        return PriceError(f"{self.where}, {name}: expected {expected}, found {safe(self.text(name), 40)!r}")

    def number(self, name: str) -> float:
        try:
            value = float(self.text(name))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0:
            raise self.refuse(name, "a number above 0")
        return value

    def retrieved(self, today: date, max_age_days: int) -> date:
        try:
            found = date.fromisoformat(self.text("retrieved"))
        except ValueError:
            raise self.refuse("retrieved", "a date such as 2026-11-24") from None
        age = (today - found).days
        if age < 0:
            raise self.refuse("retrieved", f"a date until today ({today})")
        if age > max_age_days:
            raise PriceError(
                f"{self.where}: the price of {safe(self.text('InstanceType'), 60)} is {age} days old, "
                f"expected at most {max_age_days}: look it up again, or allow it with PRICE_AGE={age}"
            )
        return found

    def accelerators(self) -> tuple[str, int]:
        """Name and count; empty and 0 without any."""
        name, number = self.text("AcceleratorName"), self.text("AcceleratorCount")
        if not name and number in ("", "0", "0.0"):
            return "", 0
        if not name:
            raise self.refuse("AcceleratorName", "a name, because AcceleratorCount is not 0")
        if self.number("AcceleratorCount") % 1:
            raise self.refuse("AcceleratorCount", "a whole number")
        return safe(name, 60), int(self.number("AcceleratorCount"))


def _row(line: _Line, today: date, max_age_days: int) -> tuple[Machine, str, date, str]:
    """(machine, currency, date, source) of one row."""
    if None in line.values or None in line.values.values():
        raise PriceError(f"{line.where}: expected one value for each column of the header")
    for name in ("InstanceType", "source"):
        if not line.text(name):
            raise line.refuse(name, "a text")
    currency = line.text("currency")
    if not _CURRENCY.fullmatch(currency):
        raise line.refuse("currency", "three letters such as USD")
    accelerator, devices = line.accelerators()
    memory = _GPU_MEMORY.search(line.text("GpuInfo"))
    machine = Machine(
        safe(line.text("InstanceType"), 60),
        accelerator,
        devices,
        line.number("vCPUs"),
        int(line.number("MemoryGiB") * (1 << 30)),
        line.number("Price"),
        safe(line.text("Region"), 40),
        int(memory[1]) << 20 if memory else None,
    )
    return machine, currency, line.retrieved(today, max_age_days), safe(line.text("source"), 120)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
