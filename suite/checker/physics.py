"""PHYS: the analytic work does not exceed what the devices can do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from suite.checker.context import Context, Fault, rule
from suite.contract import BENCHMARK, MEASURED_STEPS, Key
from suite.workloads import specification

_WINDOWS = "windows of the repeats"


def _share(c: Context, work: int, peak: float | None) -> float:
    """The share that ``work`` per 100 steps has of ``peak`` (per second, of all devices)."""
    windows = sum(repeat.window_ns or 0 for repeat in c.repeats)
    if peak is None or windows <= 0:
        return 0.0
    windows_of_100 = len(c.repeats) * c.counts["measured_steps"] / MEASURED_STEPS
    return work * windows_of_100 / (windows / 1e9) / peak


# Cached: the computation walks through the network, and many results share a key.
@lru_cache(maxsize=1024)
def window_flop(key: Key) -> int:
    """:meth:`suite.contract.Specification.window_flop`."""
    return specification(key.workload).window_flop(key)


@lru_cache(maxsize=1024)
def window_bytes(key: Key) -> int:
    """:meth:`suite.contract.Specification.window_bytes`."""
    return specification(key.workload).window_bytes(key)


def _flop_share(c: Context) -> float:
    return _share(c, window_flop(c.key), c.peaks[0])


def _whose(c: Context) -> str:
    """Whose limits apply, as findings name it."""
    if c.on_processor:
        return f"of {c.cores} processor cores at {c.rules.limit(f'core_flops_{c.key.precision}'):.1e} FLOP/s"
    if c.device is None:
        return f"of {c.rules.limit('unlisted_device'):g} times the fastest listed device"
    return f"of {c.device['names'][0]}"


@rule("PHYS-001", kind=BENCHMARK)
def below_peak(c: Context) -> Iterator[Fault]:
    """No device computes faster than its peak: in the windows, or in the time to quality."""
    wanted = f"at most 100 % of the dense peak {_whose(c)}"
    if c.mode != "quality":
        if _flop_share(c) > 1:
            yield Fault(_WINDOWS, wanted, f"{_flop_share(c):.1%}")
        return
    for repeat in c.repeats:
        for last in repeat.evaluations[-1:]:
            share = _quality_share(c, last["step"], last["elapsed_ns"])
            if share > 1:
                yield Fault(last.location("elapsed_ns"), wanted, f"{share:.1%}")


def _quality_share(c: Context, steps: int, elapsed_ns: int) -> float:
    """The share that ``steps`` of training in ``elapsed_ns`` have of the peak; 0 where one is unknown."""
    try:
        work = window_flop(c.key) / MEASURED_STEPS
    except ValueError:  # gnmt: the sentences of other batches than the rules' have no known lengths
        return 0.0
    peak = c.peaks[0]
    return 0.0 if peak is None or elapsed_ns <= 0 else work * steps / (elapsed_ns / 1e9) / peak


@rule("PHYS-002", mode="throughput", kind=BENCHMARK)
def plausible_share(c: Context) -> Iterator[Fault]:
    """Over 85 % of the peak is flagged."""
    limit = c.rules.limit("flop_share")
    if limit < _flop_share(c) <= 1:
        yield Fault(_WINDOWS, f"at most {limit:.0%} of the dense peak {_whose(c)}", f"{_flop_share(c):.1%}")


@rule("PHYS-003", mode="throughput", kind=BENCHMARK)
def below_bandwidth(c: Context) -> Iterator[Fault]:
    """No device moves more bytes than its memory can."""
    share = _share(c, window_bytes(c.key), c.peaks[1])
    if share > 1:
        yield Fault(_WINDOWS, f"at most 100 % of the memory bandwidth {_whose(c)}", f"{share:.1%}")
