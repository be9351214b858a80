"""Explain a run's speed in one line: the share of the physical limit, and what slowed the run."""

from __future__ import annotations

from collections.abc import Mapping

from suite.contract import CONVERSION, LOAD
from suite.log.model import Record
from suite.log.safe import safe
from suite.metrics.metric import Metric
from suite.metrics.physical_limit import physical_limit
from suite.metrics.run import drift_percent, metrics_of


def explain_speed(record: Record) -> str:
    """One line: share of the physical limit, input wait, throttling, drift; causes of unknown parts."""
    metrics = metrics_of(record)
    if not metrics:
        return "no repeat was completed"
    if not record.computes:
        out = {CONVERSION: ("shards_written", "written"), LOAD: ("batches_delivered", "delivered")}
        return "; ".join([_bytes(metrics, *out[record.kind]), _throttled(metrics)])
    parts = [
        _limit(physical_limit(record)),
        _part(metrics["input_wait_percent"], "waited for input {} of the window", "input wait unknown"),
        _throttled(metrics),
    ]
    if record.mode != "quality":
        parts.append(_drift(drift_percent(record)))
    return "; ".join(parts)


def _bytes(metrics: Mapping[str, Metric], out: str, done: str) -> str:
    """The rates at which a job without a model read and wrote, and the cores that it used."""
    read, written = metrics["files_read_mb_per_s"], metrics[f"{out}_mb_per_s"]
    cores = metrics["cpu_worker_cores"]
    used = "an unknown share of the cores" if cores.value is None else f"{cores.value:.3g} cores"
    if read.value is None or written.value is None:
        return f"bytes unknown: {safe(read.reason)}"
    return f"{read.value:,.4g} MB/s read and {written.value:,.4g} MB/s {done} with {used}"


def _limit(share: Metric) -> str:
    if share.value is None:
        return f"share of the physical limit unknown: {safe(share.reason)}"
    return f"{_percent(share.value)} of the physical limit ({safe(share.note, 160)})"


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 100 else f"{value:.3g} %"


def _part(metric: Metric, text: str, unknown: str) -> str:
    return (
        f"{unknown}: {safe(metric.reason)}" if metric.value is None else text.format(_percent(metric.value))
    )


def _throttled(metrics: Mapping[str, Metric]) -> str:
    gpu, cpu = metrics["gpu_throttled_percent"], metrics["cpu_throttled_percent"]
    known = [
        (name, metric.value) for name, metric in (("GPU", gpu), ("CPU", cpu)) if metric.value is not None
    ]
    if not known:
        return f"throttled time unknown: {safe(cpu.reason)}"
    slowed = [f"{name} {_percent(value)}" for name, value in known if value > 0]
    return (
        f"throttled: {', '.join(slowed)}"
        if slowed
        else f"no throttling of {' and '.join(n for n, _ in known)}"
    )


def _drift(drift: Metric) -> str:
    if drift.value is None:
        return f"drift within the window unknown: {safe(drift.reason)}"
    value = drift.value
    if abs(value) < 0.05:
        return "last steps as fast as the first"
    direction = "slower" if value > 0 else "faster"
    return f"last steps {_percent(abs(value))} {direction} than the first"
