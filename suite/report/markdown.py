"""Tables of many results in Markdown; every cell is escaped so that it cannot become markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.compare.input_bound import input_bounds
from suite.contract import CONVERSION, LOAD
from suite.log.units import count, significant
from suite.report.cells import escaped, markdown_table, ranks_text
from suite.report.summary_text import kind_text
from suite.report.table import show

if TYPE_CHECKING:
    from suite.compare.result_row import ResultRow
    from suite.report.summary import Table

_SENTENCE = 600  # characters
_COMPARE = (
    "Rows compare only where the benchmark and its limits are the same; framework and device may differ.\n"
)


def to_markdown(tables: Sequence[Table]) -> str:
    """A heading and a table for each group."""
    parts = []
    for table in tables:
        parts.append(f"## {table.division} division, {kind_text(table)}\n")
        parts.append("\n".join(markdown_table(*_markdown_rows(table))) + "\n")
    bounds = input_bounds(row for table in tables for row in table.rows)
    parts += ["".join(f"- {escaped(one.sentence, _SENTENCE)}\n" for one in bounds)] if bounds else []
    return "\n".join([_COMPARE, *parts]) if parts else "No results found.\n"


def _markdown_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    heads = ["benchmark", "framework", "device", "image"]
    if table.mode == "quality":
        heads += ["quality", "target", "less fp32", "time to quality"]
    elif table.mode == CONVERSION:
        heads += ["throughput", "95 % interval", "CV", "files read", "shards written"]
    elif table.mode == LOAD:
        heads += ["throughput", "95 % interval", "CV", "files read", "delivered"]
    else:
        heads += ["throughput", "95 % interval", "CV", "step p50", "loss", "GPU use"]
    heads += ["host memory", "device memory", "rules", "status", "run"]
    rows = []
    for row in table.rows:
        cells = [_benchmark(row), str(row.key.get("framework", "")), row.device, _image(row)]
        cells += {"quality": _quality, CONVERSION: _bytes, LOAD: _bytes}.get(table.mode, _throughput)(row)
        run = f"{row.submitter}, {row.system}: {row.run_id}" if row.submitter else row.run_id
        status = row.status.replace("_", " ") + (f" ({count(row.flags, 'flag')})" if row.flags else "")
        cells += [
            _shown(row, "peak_host_memory_bytes"),
            _shown(row, "peak_device_memory_bytes"),
            row.rules,
            "; ".join(filter(None, (f"{status}: {row.why}" if row.why else status, row.ranks))),
            run,
        ]
        rows.append(cells)
    return heads, rows


def _quality(row: ResultRow) -> list[str]:
    score = _shown(row, "time_to_quality_s") or row.missing_score
    return [*(_shown(row, name) for name in ("quality", "quality_target", "quality_less_fp32")), score]


def _throughput(row: ResultRow) -> list[str]:
    loss = f"{_shown(row, 'loss_first')} → {_shown(row, 'loss_last')}"
    return [
        _shown(row, "throughput_per_s") or row.missing_score,
        _interval(row),
        _shown(row, "cv_percent"),
        _shown(row, "step_p50_ms"),
        loss if "loss_first" in row.metrics else "",
        _shown(row, "gpu_utilisation_percent"),
    ]


def _bytes(row: ResultRow) -> list[str]:
    out = "batches_delivered" if row.group[2] == LOAD else "shards_written"
    return [
        _shown(row, "throughput_per_s") or row.missing_score,
        _interval(row),
        _shown(row, "cv_percent"),
        _shown(row, "files_read_mb_per_s"),
        _shown(row, f"{out}_mb_per_s"),
    ]


def _interval(row: ResultRow) -> str:
    low, high = (row.metrics.get(f"throughput_{end}_per_s") for end in ("low", "high"))
    if low is None or high is None or low.value is None or high.value is None:
        return ""
    return f"{significant(low.value)} to {significant(high.value)} {high.unit}"


def _benchmark(row: ResultRow) -> str:
    """The key and limits of a row as text, without framework and data, which have columns of their own."""
    names = ("workload", "variant", "phase", "scenario", "precision", "scale", "cache")
    parts = [str(row.key[name]) for name in names if row.key.get(name)]
    if row.key.get("storage"):
        parts += [f"to {row.key['storage']}", f"{row.key['images_per_shard']} images a shard"]
    elif row.key:
        parts += [f"batch {row.key['batch_per_device']}", ranks_text(row.key)]
    if row.limits_text:
        parts.append(f"({row.limits_text})")
    return " ".join(parts)


def _image(row: ResultRow) -> str:
    if row.image.closed_ready is None:
        return row.runtime
    ready = "closed-ready" if row.image.closed_ready else f"not closed-ready: {row.image.why_not}"
    return f"{row.image.name} ({ready})"


def _shown(row: ResultRow, name: str) -> str:
    metric = row.metrics.get(name)
    return show(metric) if metric else ""
