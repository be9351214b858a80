"""What limited the machine while its baseline was measured, as sentences, from the samples in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

BUSY_CORES = 0.25  # so many cores of other processes are worth a sentence
SHORTEST_NS = 1_000_000_000  # the kernel counts processor time in ticks of 10 ms on every core
STEAL_SHARE = 0.02  # of the time of the cores
THROTTLED_SHARE = 0.01  # of the time of the group
GROUPS = {"cpu": "CPU group", "gpu": "GPU group", "disk": "disk group"}


def conditions(events: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Sentences about the ``conditions`` events of a log, two for each group: before and after it."""
    found: list[str] = []
    for group, title in GROUPS.items():
        samples = [event for event in events if event["data"]["group"] == group]
        if [event["data"]["moment"] for event in samples] == ["before", "after"]:
            before, after = (event["data"] for event in samples)
            elapsed = max(1, samples[1]["mono_ns"] - samples[0]["mono_ns"])
            found += [f"{title}: {text}" for text in _of_cpu(before["cpu"], after["cpu"], elapsed)]
            for index, (one, other) in enumerate(
                zip(before["devices"] or (), after["devices"] or (), strict=False)
            ):
                found += [f"{title}: gpu{index}: {text}" for text in _of_device(one, other, elapsed)]
    return tuple(found)


def _of_cpu(before: Mapping[str, Any], after: Mapping[str, Any], elapsed: int) -> list[str]:
    found = []
    cores, threads = after["cores"], after["threads"]
    if cores < threads:
        found.append(f"the affinity allows {cores} of {threads} cores")
    if after["limit"] is not None and Decimal(after["limit"]) < cores:
        found.append(f"a control group limits the processor to {after['limit']} of {cores} cores")
    throttled = _difference(before, after, "throttled_ns")
    if throttled is not None and throttled > THROTTLED_SHARE * elapsed:
        found.append(
            f"a control group stopped the processes for {throttled / 1e9:.1f} s, summed over processors"
        )
    others = (after["busy_ns"] - before["busy_ns"] - (after["suite_ns"] - before["suite_ns"])) / elapsed
    if others >= BUSY_CORES and elapsed >= SHORTEST_NS:
        found.append(f"other processes used {others:.1f} of {threads} cores")
    steal = (after["steal_ns"] - before["steal_ns"]) / elapsed / threads
    if steal >= STEAL_SHARE:
        found.append(f"the hypervisor withheld {steal:.0%} of the processor's time")
    return found


def _of_device(before: Mapping[str, Any], after: Mapping[str, Any], elapsed: int) -> list[str]:
    found = []
    if before["foreign_processes"]:
        found.append(f"other processes were on it before the group: {before['foreign_processes']}")
    cap, usual = after["power_limit_mw"], after["power_limit_default_mw"]
    if cap is not None and usual is not None and cap < usual:
        found.append(f"the power is capped at {cap / 1000:.0f} W; the default is {usual / 1000:.0f} W")
    width, most = after["pcie_width"], after["pcie_width_max"]
    if width is not None and most is not None and width < most:
        found.append(f"PCIe has {width} lanes of {most}")
    for name in sorted(after["throttle_ns"]):
        lowered = _difference(before["throttle_ns"], after["throttle_ns"], name)
        if lowered is not None and lowered > THROTTLED_SHARE * elapsed:
            cause = name.replace("_", " ")
            found.append(f"clocks were lowered for {lowered / 1e9:.1f} s of {elapsed / 1e9:.0f} s ({cause})")
    for field, text in (("ecc_uncorrected", "uncorrectable memory errors"), ("pcie_replay", "PCIe replays")):
        count = _difference(before, after, field)
        if count:
            found.append(f"{count} {text}")
    return found


def _difference(before: Mapping[str, Any], after: Mapping[str, Any], field: str) -> int | None:
    first, last = before.get(field), after.get(field)
    return None if first is None or last is None else int(last) - int(first)
