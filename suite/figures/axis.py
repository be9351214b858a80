"""Axes: the range, "nice" values for ticks, and the unit that keeps their labels short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suite.figures.svg import width_of
from suite.log.units import quantity, significant

_BINARY = ((float(1 << 30), "GiB"), (float(1 << 20), "MiB"), (float(1 << 10), "KiB"))
_DECIMAL = ((1e9, "billion"), (1e6, "million"))
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_LEAST = 1e-100  # of a logarithmic axis
_GAP = 8.0  # px between labels


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows. ``ticks``: these values instead of round ones, such as the batches of a sweep."""

    label: str
    unit: str = ""  # bytes are shown in binary multiples
    log: bool = False
    zero: bool = False  # begin at 0 (not with ``log``)
    ticks: tuple[float, ...] = ()

    @property
    def heading(self) -> str:
        """The axis as a heading of a table, with the unit of the cells."""
        return f"{self.label} ({self.unit})" if self.unit and self.unit != "bytes" else self.label

    def cell(self, value: float | None, note: str = "") -> str:
        """A value of this axis as a cell of a table."""
        if value is None:
            return f"null ({note})" if note else "null"
        return quantity(value, "bytes") if self.unit == "bytes" else significant(value)

    def with_unit(self, value: float) -> str:
        """A value of this axis with its unit."""
        return self.cell(value) if self.unit == "bytes" else f"{self.cell(value)} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of values on a range of px, with ticks: (value, label). ``title``: the axis with its unit."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[tuple[float, str], ...]
    title: str

    def at(self, value: float) -> float:
        """The position of a value in px; values beyond the range are at its end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def labelled(self, size: float, width: float = math.inf) -> list[tuple[float, str]]:
        """(middle, label) of the ticks of a horizontal axis whose labels do not overlap, with both ends.

        A label that would leave a figure of this ``width`` is moved to its edge.
        """
        labels = []
        for value, name in self.ticks:
            half = width_of(name, size) / 2
            labels.append((min(max(self.at(value), half), width - half), name))
        first, last = labels[0], labels[-1]
        shown = [first]
        for one in labels[1:]:
            if _apart(shown[-1], one, size) and (one is last or _apart(one, last, size)):
                shown.append(one)
        return shown


def _apart(one: tuple[float, str], other: tuple[float, str], size: float) -> bool:
    """Whether the labels at two positions leave a gap."""
    return other[0] - one[0] >= (width_of(one[1], size) + width_of(other[1], size)) / 2 + _GAP


def scale(axis: Axis, values: Sequence[float], start: float, end: float, most: int = 6) -> Scale:
    """The scale of ``axis`` for finite ``values``, from ``start`` to ``end`` in px, with some ``most`` ticks.

    A logarithmic axis shows positive values only; it is linear if there are none.
    """
    log = axis.log and any(value > _LEAST for value in values)
    values = [value for value in values if value > _LEAST or not log] or [0.0, 1.0]
    low, high = min(values), max(values)
    if axis.zero and not log:
        low, high = min(low, 0.0), max(high, 0.0)
    divisor, unit = _unit(axis.unit, max(abs(low), abs(high)))
    low, high = low / divisor, high / divisor
    if axis.ticks:
        ticks = sorted({value / divisor for value in axis.ticks})
        low, high = min(low, ticks[0]), max(high, ticks[-1])
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 1, high + 1)
        names = [_short(tick) for tick in ticks]
    elif log:
        ticks = _log_ticks(low, high, most)
        names = [_short(tick) for tick in ticks]
    else:
        ticks, names = _linear_ticks(low, high, most)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    title = f"{axis.label} ({unit})" if unit else axis.label
    return Scale(
        low * divisor, high * divisor, start, end, log,
        tuple((tick * divisor, name) for tick, name in zip(ticks, names, strict=True)),
        title + (", logarithmic" if log else ""),
    )  # fmt: skip


def _short(value: float) -> str:
    """A tick as text; its width is bounded."""
    return significant(value) if abs(value) < 1e15 else f"{value:.3g}"


def _unit(unit: str, largest: float) -> tuple[float, str]:
    """(divisor, unit of the labels)."""
    if unit == "bytes":
        return next(((size, name) for size, name in _BINARY if largest >= size), (1.0, "B"))
    divisor, word = next(((size, word) for size, word in _DECIMAL if largest >= 10 * size), (1.0, ""))
    return divisor, f"{word} {unit}".strip()


def _linear_ticks(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Round values that begin at or below ``low`` and end at or above ``high``."""
    largest = max(abs(low), abs(high))
    if high - low <= 1e-12 * largest or largest < _LEAST:  # equal, as far as labels can show
        pad = largest / 10 if largest >= _LEAST else 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in _STEPS if factor * power >= rough * 0.999), 10 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if round(step / power, 6) == 2.5 else 0))
    ticks = [index * step for index in range(first, last + 1)]
    if decimals > 6 or largest >= 1e15:
        digits = max(3, math.ceil(math.log10(largest / step)) + 2)
        return ticks, [f"{tick:.{digits}g}" for tick in ticks]
    return ticks, [f"{tick:,.{decimals}f}" for tick in ticks]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 times powers of ten from ``low`` to ``high``; if too many, the ends and the powers."""
    first, last = math.floor(math.log10(low) - 1e-9), math.ceil(math.log10(high) + 1e-9)
    fine = [(factor, factor * 10.0**power) for power in range(first, last + 1) for factor in (1, 2, 5)]
    begin = max(index for index, (_, tick) in enumerate(fine) if tick <= low * (1 + 1e-9))
    finish = min(index for index, (_, tick) in enumerate(fine) if tick >= high * (1 - 1e-9))
    if begin == finish:
        begin, finish = max(begin - 1, 0), min(finish + 1, len(fine) - 1)
    within = fine[begin : finish + 1]
    if len(within) <= most:
        return [tick for _, tick in within]
    powers = [tick for factor, tick in within[1:-1] if factor == 1]
    return [within[0][1], *powers[:: math.ceil(len(powers) / most) or 1], within[-1][1]]
