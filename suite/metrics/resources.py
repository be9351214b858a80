"""What a run used of its machine: processors, memory, accelerators, disks, as a study's table shows them."""

from __future__ import annotations

from collections.abc import Sequence

from suite.log.model import Record, Repeat
from suite.log.units import count
from suite.metrics.counters import deltas, rate, sampled
from suite.metrics.energy import NO_DEVICE
from suite.metrics.machine import at, devices, facts
from suite.metrics.metric import Metric, missing
from suite.metrics.run import metrics_of

_SAMPLED = (
    ("gpu_memory_controller_percent", "memory_utilisation_percent", 1.0, "%"),
    ("gpu_memory_used_bytes", "memory_used_bytes", 1.0, "bytes"),
)


def resources_of(record: Record) -> dict[str, Metric]:
    """Means over soaks, windows and tail, by name; a record without a completed repeat has none.

    Shares of processors are of all hardware threads of the machine. Disk traffic is what the run's processes
    read from storage within the windows: reads that the page cache serves are no traffic.
    """
    done = [repeat for repeat in record.repeats if repeat.end is not None]
    if not done:
        return {}
    found: dict[str, Metric] = {}
    of_gpu = bool(devices(record))
    metrics = metrics_of(record)
    found["gpu_utilisation_percent"] = metrics["gpu_utilisation_percent"]
    for name, field, scale, unit in _SAMPLED:
        found[name] = sampled(done, field, scale, unit) if of_gpu else missing(NO_DEVICE)
    found["cpu_percent"] = _share_of_threads(record, metrics["cpu_worker_cores"])
    found["host_memory_bytes"] = _memory(done)
    read = deltas(done, "processes.read_bytes")
    note = f"mean, counters over {count(len(done), 'window')}"
    found["disk_read_mb_per_s"] = (
        read if isinstance(read, Metric) else Metric(1e3 * rate(read), "MB/s", note=note)
    )
    found["gpu_power_w"] = metrics["gpu_power_w"]
    return found


def _memory(done: Sequence[Repeat]) -> Metric:
    """Resident memory of the run's processes: by samples, in a run without any by readings at the windows."""
    found = sampled(done, "rss_bytes", 1.0, "bytes", of="processes")
    if found.value is not None:
        return found
    ends = [
        event for repeat in done for pair in repeat.counter_pairs() for event in pair if event is not None
    ]
    values = [value for event in ends if (value := at(event.data, "processes.rss_bytes")) is not None]
    note = f"mean of {len(values)} readings at window start and end"
    return Metric(sum(values) / len(values), "bytes", note=note) if values else found


def _share_of_threads(record: Record, cores: Metric) -> Metric:
    """Cores in use as a share of the hardware threads of all nodes, which are equal machines."""
    threads = at(facts(record, "outside"), "cpu.threads")
    if cores.value is None:
        return cores
    if type(threads) is not int or threads <= 0:
        return missing("the log does not state the number of hardware threads")
    threads *= 1 if record.conversion is not None else record.key.nodes
    return Metric(100 * cores.value / threads, "%", note=f"of {threads} hardware threads, {cores.note}")
