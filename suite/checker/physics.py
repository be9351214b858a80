"""PHYS: the analytic work does not exceed the peaks in the device table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from suite.checker.context import Context, Fault, rule
from suite.contract import BENCHMARK, MEASURED_STEPS, Key
from suite.workloads import specification


def _share(c: Context, work: int, peak: str | None) -> float:
    """The share that ``work`` per 100 steps has of ``peak`` (per second and device) on all devices."""
    windows = sum(repeat.window_ns or 0 for repeat in c.repeats)
    if peak is None or windows <= 0:
        return 0.0
    windows_of_100 = len(c.repeats) * c.counts["measured_steps"] / MEASURED_STEPS
    return work * windows_of_100 / (windows / 1e9) / (float(peak) * c.key.devices)


# Cached: the computation walks through the network, and many results share a key.
@lru_cache(maxsize=1024)
def _window_flop(key: Key) -> int:
    return specification(key.workload).window_flop(key)


@lru_cache(maxsize=1024)
def _window_bytes(key: Key) -> int:
    return specification(key.workload).window_bytes(key)


def _flop_share(c: Context) -> float:
    device = c.device
    return 0.0 if device is None else _share(c, _window_flop(c.key), device["flops"].get(c.key.precision))


@rule("PHYS-001", mode="throughput", kind=BENCHMARK)
def below_peak(c: Context) -> Iterator[Fault]:
    """No device computes faster than its peak."""
    if _flop_share(c) > 1:
        yield Fault(
            "windows of the repeats", "at most 100 % of the device's dense peak", f"{_flop_share(c):.1%}"
        )


@rule("PHYS-002", mode="throughput", kind=BENCHMARK)
def plausible_share(c: Context) -> Iterator[Fault]:
    """Over 85 % of the peak is flagged."""
    limit = c.rules.limit("flop_share")
    if limit < _flop_share(c) <= 1:
        yield Fault(
            "windows of the repeats", f"at most {limit:.0%} of the dense peak", f"{_flop_share(c):.1%}"
        )


@rule("PHYS-003", mode="throughput", kind=BENCHMARK)
def below_bandwidth(c: Context) -> Iterator[Fault]:
    """No device moves more bytes than its memory can."""
    device = c.device
    if device is None:
        return
    share = _share(c, _window_bytes(c.key), device["memory_bytes_per_s"])
    if share > 1:
        yield Fault("windows of the repeats", "at most 100 % of the memory's bandwidth", f"{share:.1%}")
