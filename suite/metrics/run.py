"""The metrics of one run: every number that a table, a CSV or a page shows, computed once.

The name of a metric contains its unit (``step_p50_ms``). A metric that could not be measured has a reason and
no value. The note of an average states its windows and number of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from suite.contract import CONVERSION, LOAD
from suite.log import statistics
from suite.log.model import Data, Record, Repeat
from suite.log.units import count
from suite.metrics import counters
from suite.metrics.energy import DEVICES, NODE, energy_per_unit
from suite.metrics.image import counts_of
from suite.metrics.long_run import long_run_metrics
from suite.metrics.machine import at, device_name, devices
from suite.metrics.metric import Metric, end_of, largest, mean_seconds, missing, ratio, reason_of
from suite.workloads import specification

_OUT = {CONVERSION: "shards_written", LOAD: "batches_delivered"}
NOT_OF_ONE = {  # why a step of a job without a model has no duration of its own
    CONVERSION: "shards are written in parallel: the time between two timestamps is not that of one shard",
    LOAD: "batches are read in parallel: the time between two timestamps is not that of one batch",
}


def unit(record: Record) -> str:
    """The workload's unit of work, in the plural; "units" if this version does not know the workload."""
    try:
        return specification(record.subject.workload).UNIT + "s"
    except ValueError:
        return "units"


def title(record: Record) -> str:
    """One line with the benchmark, the device and the division."""
    name = device_name(record) or "unknown device"
    if (conversion := record.conversion) is not None:
        return (
            f"{conversion.workload}, conversion to {conversion.storage}{_encoding(conversion.encoding)} in "
            f"{conversion.framework}, "
            f"{conversion.scale} scale, {conversion.batch} images a shard on {name}; "
            f"{conversion.cache} cache; {record.division} division"
        )
    key, storage = record.key, at(record.header.data, "settings.storage")
    counts = counts_of(record)
    if devices(record):
        device = f"{key.devices} x {name}"
    else:
        device = name if key.devices == 1 else f"{key.devices} ranks, {name}"
    batch = f"batch {key.batch}" + (" per device" if key.devices > 1 else "")
    what = f"{key.phase_and_scenario}, {key.precision}"
    if not record.computes:
        loader = at(record.header.data, "loader")
        what = f"{key.phase} (the input pipeline alone, no model), loader {loader}"
    return (
        f"{key.workload} {key.variant}, {key.framework}, {what}, "
        f"{key.scale} scale, {batch} on {device}; {key.data} data"
        f"{f' from {storage}' if storage else ''}, {key.cache} cache; {f'{counts}; ' if counts else ''}"
        f"{record.division} division"
    )


def _encoding(name: str) -> str:
    """How a conversion encoded its images again, as a part of a sentence."""
    if name == "file":
        return ""
    kind, size = name.split("-")
    return f" as {'raw pixels' if kind == 'raw' else 'JPEG'} of {size} x {size}"


def metrics_of(record: Record) -> dict[str, Metric]:
    """All metrics of a record, by name. A record without a completed repeat has none."""
    done = [repeat for repeat in record.repeats if repeat.end is not None]
    if not done:
        return {}
    reports = [report.data for repeat in done for report in repeat.reports]
    metrics = (
        _quality(done)
        if record.mode == "quality"
        else {**_speed(record), **_steps(record), **_loss(record, done)}
    )
    if not record.computes:
        metrics |= _bytes(record.kind, [repeat.end.data for repeat in done if repeat.end is not None])
    many, ranks = f"over {count(len(done), 'repeat')}", len(done[0].reports)
    metrics["peak_host_memory_bytes"] = largest(
        [[report.data for report in repeat.reports] for repeat in done],
        "memory.peak_rss_bytes",
        f"largest {many}" + (f", sum of {ranks} ranks" if ranks > 1 else ""),
    )
    metrics["peak_device_memory_bytes"] = largest(
        [[report] for report in reports], "memory.peak_device_bytes", f"largest {many}"
    )
    metrics |= counters.cpu(done, reports)
    metrics |= counters.gpu(done)
    if metrics["gpu_utilisation_percent"].value is not None and record.key.data == "real":
        metrics["jpeg_engine_percent"] = counters.sampled(done, "jpeg_utilisation_percent", 1.0, "%")
    metrics["input_wait_percent"] = ratio(
        reports, "input_wait_ns", 100.0, "%", f"of the time in {count(len(done), 'window')}"
    )
    if record.mode != "quality":
        metrics |= long_run_metrics(record, done)
        for scope in (DEVICES, NODE):
            energy = energy_per_unit(record, scope, unit(record).removesuffix("s"))
            metrics[f"energy_{scope}_j_per_unit"] = energy.metric
    metrics["setup_s"] = mean_seconds(reports, "setup_ns", many)
    metrics["compile_s"] = mean_seconds(reports, "compile_ns", many)
    return metrics


def _speed(record: Record) -> dict[str, Metric]:
    speed = record.throughput
    if speed is None:
        return {"throughput_per_s": missing("no repeat has a window with units of work")}
    each = f"{unit(record)}/s"
    windows = count(len(speed.means_ns), "window")
    window = f"{speed.units:,} {unit(record)} in {speed.window_ns / 1e9:.2f} s, {windows}"
    mean = speed.window_ns / 1e6 / (int(record.header["measured_steps"]) * len(speed.means_ns))
    metrics = {
        "throughput_per_s": Metric(speed.per_second, each, note=window),
        "step_mean_ms": Metric(mean, "ms", note=f"of {windows}, all steps weighted equally"),
    }
    if speed.half_width is None or speed.half_width >= 1:
        why = (
            "an interval needs 2 to 20 repeats" if speed.half_width is None else "the spread exceeds the mean"
        )
        metrics |= {f"throughput_{bound}_per_s": missing(why) for bound in ("low", "high")}
        metrics |= {f"step_mean_{bound}_ms": missing(why) for bound in ("low", "high")}
    else:
        # The interval is of the time per unit, T (1 ± h); a rate is its inverse.
        note = f"time per unit ± {100 * speed.half_width:.2f} %, Student t over the repeats"
        metrics["throughput_low_per_s"] = Metric(speed.per_second / (1 + speed.half_width), each, note=note)
        metrics["throughput_high_per_s"] = Metric(speed.per_second / (1 - speed.half_width), each, note=note)
        metrics["step_mean_low_ms"] = Metric(mean * (1 - speed.half_width), "ms", note=note)
        metrics["step_mean_high_ms"] = Metric(mean * (1 + speed.half_width), "ms", note=note)
    metrics["cv_percent"] = (
        missing("a spread needs at least two repeats")
        if speed.cv is None
        else Metric(100 * speed.cv, "%", note=f"of the mean times of {len(speed.means_ns)} repeats")
    )
    return metrics


def _steps(record: Record) -> dict[str, Metric]:
    names = {percent: f"step_p{percent}_ms" for percent in (50, 90, 99)}
    if not record.computes:
        return dict.fromkeys(names.values(), missing(NOT_OF_ONE[record.kind]))
    pooled = record.pooled_ns
    if not pooled:
        why = "timestamps of kind host_dispatch state when a step was enqueued, not when it ended"
        return dict.fromkeys(
            names.values(), missing(why if record.timestamp_kind == "host_dispatch" else "no steps")
        )
    note = f"of {len(pooled)} steps, timestamps of kind {record.timestamp_kind}"
    return {
        name: Metric(statistics.percentile(pooled, percent) / 1e6, "ms", note=note)
        for percent, name in names.items()
    }


def _loss(record: Record, done: Sequence[Repeat]) -> dict[str, Metric]:
    """Loss of step 0, and of the last step with the most similar work, because losses depend on the work."""
    if not record.computes or record.key.phase != "train":
        return {}
    trained = [repeat for repeat in done if repeat.steps]
    return {
        "loss_first": _mean_loss(done, [(repeat, 0) for repeat in trained]),
        "loss_last": _mean_loss(done, [(repeat, _last_alike(repeat.global_units)) for repeat in trained]),
    }


def _last_alike(units: Sequence[int]) -> int:
    """The last step whose number of units is equal or nearest to that of step 0."""
    return min(range(len(units) - 1, 0, -1), key=lambda step: abs(units[step] - units[0]))


def _mean_loss(done: Sequence[Repeat], steps: Sequence[tuple[Repeat, int]]) -> Metric:
    all_losses = [repeat.global_losses[step] for repeat, step in steps]
    losses = [loss for loss in all_losses if loss is not None]
    if not losses:
        return missing(reason_of(end_of(done[0]), "step.loss") if steps else "no steps")
    numbers = sorted({step for _, step in steps})
    where = (
        f"step {numbers[0]}"
        if len(numbers) == 1
        else f"steps {numbers[0]}-{numbers[-1]}, work nearest to step 0's"
    )
    return Metric(sum(losses) / len(losses), note=f"{where}, mean of {count(len(losses), 'repeat')}")


def _bytes(kind: str, ends: Sequence[Data]) -> dict[str, Metric]:
    """Bytes of files read, and of shards written or batches delivered, per repeat and per second."""
    windows = sum(end["window"]["ns"] for end in ends)
    many = f"in a window, mean of {count(len(ends), 'repeat')}"
    metrics = {}
    for direction, name in (("in", "files_read"), ("out", _OUT[kind])):
        sizes = [at(end, f"{kind}.bytes_{direction}") for end in ends]
        total = None if None in sizes or windows <= 0 else sum(sizes)
        absent = missing("the log has no number of bytes for a repeat")
        metrics[f"{name}_bytes"] = absent if total is None else Metric(total // len(ends), "bytes", note=many)
        metrics[f"{name}_mb_per_s"] = absent if total is None else Metric(1e3 * total / windows, "MB/s")
    return metrics


def _quality(done: Sequence[Repeat]) -> dict[str, Metric]:
    finals = [repeat.evaluations[-1].data for repeat in done if repeat.evaluations]
    if not finals:
        absent = missing("the log has no evaluation")
        return {"quality": absent, "quality_target": absent, "time_to_quality_s": absent}
    metric, target = str(finals[0]["metric"]), finals[0]["target"]
    value = sum(float.fromhex(final["value"]) for final in finals) / len(finals)
    many = f", mean of {len(finals)} runs" if len(finals) > 1 else ""
    epochs = ", ".join(map(str, sorted({final["epoch"] for final in finals})))
    metrics = {
        "quality": Metric(value, metric, note=f"at the last evaluation, epoch {epochs}{many}"),
        "quality_target": Metric(float(target), metric, note="of the rules"),
    }
    reached = [first_reached(repeat) for repeat in done]
    times = [elapsed for elapsed in reached if elapsed is not None]
    metrics["time_to_quality_s"] = (
        Metric(sum(times) / len(times) / 1e9, "s", note=f"from the first touch of the data{many}")
        if len(times) == len(reached)
        else missing(
            f"the target {target} was not reached in {len(reached) - len(times)} of {len(reached)} runs"
        )
    )
    return metrics


def first_reached(repeat: Repeat) -> int | None:
    """Nanoseconds from the first touch of the data until the target was reached; None if it was not."""
    return next((event.data["elapsed_ns"] for event in repeat.evaluations if event.data["reached"]), None)


def drift_percent(record: Record) -> Metric:
    """How much slower the last 30 steps of a window are than the first 30, per unit: the ranks' median."""
    if not record.pooled_ns:
        return missing(f"timestamps of kind {record.timestamp_kind} do not time steps")
    drifts = []
    for repeat in record.repeats:
        if repeat.end is None:
            continue
        for rank in repeat.ranks:
            steps = repeat.steps_of(rank, "measured")
            timestamps = [0, *(step.data["step_end_ns"] for step in steps)]
            times = [
                (end - start) / (step["units"] or 1)
                for (start, end), step in zip(pairwise(timestamps), steps, strict=True)
            ]
            if not times or min(times) <= 0:
                return missing("the step timestamps do not increase")
            drifts.append(-100 * statistics.drift(times) / (1 + statistics.drift(times)))
    return Metric(
        statistics.median(drifts), "%", note="last 30 steps against first 30, median over repeats and ranks"
    )
