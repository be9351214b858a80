"""What the hardware can do at most: analytic work against the device table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from suite.checker.context import Context, Fault, rule
from suite.workloads import specification
from suite.workloads.contract import Key


def _device(c: Context) -> Mapping[str, Any] | None:
    """The table's entry, where a model ran on exactly one kind of device that is in it."""
    return None if c.converts else c.device


def _share(c: Context, work: int, peak: str | None) -> float:
    """Share of the peak (per second, all devices) that the run used."""
    windows = sum(repeat.window_ns or 0 for repeat in c.repeats)
    if peak is None or windows <= 0:
        return 0.0
    return work * len(c.repeats) / (windows / 1e9) / (float(peak) * c.key.devices)


# A network is walked through for its work, and results of one key come by the dozen.
@lru_cache(maxsize=1024)
def _window_flop(key: Key) -> int:
    return specification(key.workload).window_flop(key)


@lru_cache(maxsize=1024)
def _window_bytes(key: Key) -> int:
    return specification(key.workload).window_bytes(key)


def _flop_share(c: Context) -> float:
    device = _device(c)
    return 0.0 if device is None else _share(c, _window_flop(c.key), device["flops"].get(c.key.precision))


@rule("PHYS-001", mode="throughput")
def below_peak(c: Context) -> Iterator[Fault]:
    """No device computes faster than its peak."""
    if _flop_share(c) > 1:
        yield Fault(
            "windows of the repeats", "at most 100 % of the device's dense peak", f"{_flop_share(c):.1%}"
        )


@rule("PHYS-002", mode="throughput")
def plausible_share(c: Context) -> Iterator[Fault]:
    """Over 85 % of the peak deserves a look."""
    limit = c.rules.limit("flop_share")
    if limit < _flop_share(c) <= 1:
        yield Fault(
            "windows of the repeats", f"at most {limit:.0%} of the dense peak", f"{_flop_share(c):.1%}"
        )


@rule("PHYS-003", mode="throughput")
def below_bandwidth(c: Context) -> Iterator[Fault]:
    """No device moves more bytes than its memory can."""
    device = _device(c)
    if device is None:
        return
    share = _share(c, _window_bytes(c.key), device["memory_bytes_per_s"])
    if share > 1:
        yield Fault("windows of the repeats", "at most 100 % of the memory's bandwidth", f"{share:.1%}")
