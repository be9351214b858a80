"""Why this speed: one line with the share of the physical limit, and what slowed the run down."""

from __future__ import annotations

from collections.abc import Mapping

from suite.log.model import Record
from suite.log.safe import safe
from suite.metrics.metric import Metric
from suite.metrics.physical_limit import physical_limit
from suite.metrics.run import drift_percent, metrics_of


def why(record: Record) -> str:
    """One line: share of the physical limit, waiting for input, throttling, drift. Unknown parts say why."""
    found = metrics_of(record)
    if not found:
        return "no repeat was completed"
    if record.conversion is not None:
        return "; ".join([_moved(found), _throttled(found)])
    parts = [
        _limit(physical_limit(record)),
        _part(found["input_wait_percent"], "waited for input {} of the window", "input wait unknown"),
        _throttled(found),
    ]
    if record.mode != "quality":
        parts.append(_drift(drift_percent(record)))
    return "; ".join(parts)


def _moved(found: Mapping[str, Metric]) -> str:
    """What a conversion read and wrote, and the processor time that it took."""
    read, written = found["files_read_mb_per_s"], found["shards_written_mb_per_s"]
    cores = found["cpu_worker_cores"]
    used = "an unknown share of the cores" if cores.value is None else f"{cores.value:.3g} cores"
    if read.value is None or written.value is None:
        return f"bytes unknown: {safe(read.reason)}"
    return f"{read.value:,.4g} MB/s read and {written.value:,.4g} MB/s written with {used}"


def _limit(share: Metric) -> str:
    if share.value is None:
        return f"share of the physical limit unknown: {safe(share.reason)}"
    return f"{_percent(share.value)} of the physical limit ({safe(share.note, 160)})"


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 100 else f"{value:.3g} %"


def _part(figure: Metric, text: str, unknown: str) -> str:
    return (
        f"{unknown}: {safe(figure.reason)}" if figure.value is None else text.format(_percent(figure.value))
    )


def _throttled(found: Mapping[str, Metric]) -> str:
    gpu, cpu = found["gpu_throttled_percent"], found["cpu_throttled_percent"]
    known = [
        (name, figure.value) for name, figure in (("GPU", gpu), ("CPU", cpu)) if figure.value is not None
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
    word = "slower" if value > 0 else "faster"
    return f"last steps {_percent(abs(value))} {word} than the first"
