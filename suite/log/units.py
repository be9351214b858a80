"""Formats numbers: binary multiples of bytes, durations, four significant digits, plurals."""

from __future__ import annotations


def quantity(value: float, unit: str) -> str:
    """``value`` as text: bytes in binary multiples, short times in µs, four significant digits."""
    if unit == "bytes":
        for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if abs(value) >= size:
                return f"{value / size:.2f} {name}"
        return f"{value:.0f} B"
    if unit == "ms" and abs(value) < 1:
        return f"{significant(value * 1000)} µs"
    return f"{significant(value)} {unit}".rstrip()


def significant(value: float) -> str:
    """Four significant digits, thousands separated, no exponent from 1e-4 up."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.3e}"


def count(number: int, noun: str) -> str:
    """``number`` and ``noun``, in the plural unless there is one: "1 repeat", "3 repeats"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def span(seconds: float) -> str:
    """A duration to the second, from two minutes on to the minute, from three hours on to the hour."""
    if seconds >= 10800:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
