"""The data of one run of a scaling set; runs in the sandbox and returns JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.checker import check_result
from suite.compare.comparable import (
    CODE,
    IMAGE,
    MEANING,
    RULES,
    SETTINGS,
    SOFTWARE,
    SYSTEM,
    facts_by_group,
    times_of,
)
from suite.contract import EXCHANGE_OPTIONS
from suite.log import statistics
from suite.log.model import Event, Record, Repeat
from suite.log.safe import safe
from suite.metrics.counters import gpu
from suite.metrics.machine import at, device_name, devices
from suite.metrics.run import unit

# What the number of devices, the strategy and the batch change. Equal digests of code imply an equal commit.
_MAY_DIFFER = (
    *EXCHANGE_OPTIONS,
    *("batch", "nodes", "departs from", "git"),
    *("accelerators.devices", "affinity", "framework.exchange"),
    *("threads", "framework.threads", "openmp.OMP_NUM_THREADS"),  # the ranks share the processor
)
_GROUPS = (MEANING, SETTINGS, RULES, IMAGE, CODE, SYSTEM, SOFTWARE)
_OF_GPUS = ("gpu_sm_clock_mhz", "gpu_power_w")  # as the table and the page of a result state them


def scaling_arm(path: Path) -> dict[str, Any]:
    """The verdict on the result in ``path`` and, where it has a score of a benchmark, its data for a set."""
    verdict = check_result(path)
    record = verdict.record
    usable = record is not None and verdict.scored and record.computes and record.throughput
    return {
        "verdict": verdict.as_dict(),
        "arm": _arm(record) | {"flags": list(map(asdict, verdict.flags))} if record and usable else None,
    }


def _arm(record: Record) -> dict[str, Any]:
    speed, metrics = record.throughput, gpu([repeat for repeat in record.repeats if repeat.end is not None])
    assert speed is not None
    return {
        "run_id": record.run_id,
        "sha256": record.digest,
        "key": asdict(record.key),
        "unit": unit(record),
        "device": device_name(record),
        "on_gpus": bool(devices(record)),
        "exchange": _exchange(record),
        "per_second": speed.per_second,
        "facts": _compared_facts(record),
        "repeats": [times_of(repeat) for repeat in record.repeats],
        "ranks": [_rank_windows(repeat) for repeat in record.repeats],
        "power_limits": _power_limits(record),
        "threads": at(record.header.data, "settings.threads"),
        "sweep": sweep_rows(record),
        "of_gpus": {name: asdict(metrics[name]) for name in _OF_GPUS},
    }


def _exchange(record: Record) -> str:
    """What moves the gradients, in words; empty where none are exchanged."""
    settings = record.header["settings"]
    collective, buckets = settings.get("collective"), settings.get("bucket_mib")
    if not isinstance(collective, str):
        return ""
    return safe(collective) + (f" in buckets of {buckets} MiB" if isinstance(buckets, int) else "")


def _compared_facts(record: Record) -> dict[str, Any]:
    """The facts that the arms of a set share, by group and dotted name."""
    found = facts_by_group(record)
    return {
        f"{group}: {name}": value
        for group in _GROUPS
        for name, value in found[group].items()
        if not any(name == one or name.startswith(f"{one}.") for one in _MAY_DIFFER)
    } | {f"{SYSTEM}: device": device_name(record)}


def _power_limits(record: Record) -> dict[str, list[int]]:
    """The power limits (mW) of each device by UUID, of all repeats; usually one limit."""
    found: dict[str, set[int]] = {}
    for repeat in record.repeats:
        event = repeat.env("outside")
        listed = None if event is None else at(event["facts"], "accelerators.devices")
        for device in listed if isinstance(listed, list) else ():
            limits = found.setdefault(str(at(device, "uuid")), set())
            if type(limit := at(device, "power_limit_mw")) is int:
                limits.add(limit)
    return {uuid: sorted(limits) for uuid, limits in found.items()}


def _rank_windows(repeat: Repeat) -> list[int]:
    return [int(report["window"]["ns"]) for report in repeat.reports]


def sweep_rows(record: Record) -> list[dict[str, Any]]:
    """The sweep of the exchange: for each size the time of the slowest rank and the bus bandwidth.

    The time is the median of a rank's iterations. The bandwidth is that of nccl-tests (PERFORMANCE.md there):
    2 (n - 1) / n times bytes per second, which no number of ranks can raise above that of the slowest link.
    """
    sweeps: Sequence[Event] = record.repeats[0].sweeps if record.repeats else ()
    ranks, rows = len(sweeps), []
    for sizes in zip(*[sweep["sizes"] for sweep in sweeps], strict=False):
        slowest_ns = max(statistics.median(size["times_ns"]) for size in sizes)
        rate, reason = 2e9 * (ranks - 1) / ranks * sizes[0]["bytes"] / slowest_ns, ""
        if sweeps[0]["operation"] != "all_reduce":
            rate, reason = (
                None,
                "a push and pull through a server is no all-reduce: the formula does not hold",
            )
        rows.append(
            {
                "operation": sweeps[0]["operation"],
                "bytes": sizes[0]["bytes"],
                "ns": slowest_ns,
                "bus_bytes_per_s": rate,
                "reason": reason,
            }
        )
    return rows
