"""The table of a sweep: outcomes, reasons, drift of the reference cell, published figures."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from suite.compare.result_row import row_of
from suite.metrics.metric import Metric
from suite.report.grid import GridEntry, entry_of
from suite.report.sweep_table import SweepRow, SweepTable, to_csv, to_json, to_markdown, to_text
from tests.fixtures.good_log import Good, write_good


@pytest.fixture(name="ok")
def _ok(tmp_path: Path) -> GridEntry:
    return entry_of(row_of(write_good(tmp_path / "ok")))


def with_throughput(entry: GridEntry, value: float) -> GridEntry:
    assert entry.row is not None
    metrics = {**entry.row.metrics, "throughput_per_s": Metric(value, "samples/s")}
    return replace(entry, row=replace(entry.row, metrics=metrics))


@pytest.fixture(name="table")
def _table(ok: GridEntry, tmp_path: Path) -> SweepTable:
    oom = entry_of(row_of(write_good(tmp_path / "oom", Good(out_of_memory_in=0))))
    skipped = replace(ok, status="N/A", why="<b>no|such device", row=None)
    common = {"workload": "ncf", "framework": "pytorch"}
    return SweepTable(
        (
            SweepRow({**common, "batch": "16"}, ok, {"P100": "219 images/s"}),
            SweepRow({**common, "batch": "32"}, oom, {}),
            SweepRow({**common, "batch": "64", "devices": "9"}, skipped, {}),
        ),
        tuple(with_throughput(ok, value) for value in (100.0, 110.0, 90.0)),
        ("two vCPU suffice",),
        ("https://example.org",),
        7,
    )


def test_text_has_axes_outcomes_reasons_drift_and_published_figures(table: SweepTable) -> None:
    heading, heads, first, second, third, *notes = to_text(table).splitlines()
    assert heading.startswith(
        "workload=ncf framework=pytorch; 3 cells: 1 ok, 1 oom, 1 skipped; on Imagined CPU"
    )
    assert heads.split("  ")[0] == "batch"
    assert heads.endswith("published: P100")
    assert "219 images/s" in first
    assert second.split()[:3] == ["32", "-", "oom"]
    assert third.split()[:3] == ["64", "9", "skipped"]
    assert any(note.startswith("oom: ") and "[batch=32]" in note for note in notes)
    assert "skipped: <b>no|such device [batch=64 devices=9]" in notes
    assert (
        "reference cell, in order: 100, 110, 90 samples/s; -10.0 % from first to last, range 20.0 %" in notes
    )
    assert notes[-2:] == [
        "published: two vCPU suffice",
        "published figures are from https://example.org; they are no results",
    ]


def test_json_and_csv_have_numbers_or_null(table: SweepTable) -> None:
    value = json.loads(to_json(table))
    assert [cell["outcome"] for cell in value["cells"]] == ["ok", "oom", "skipped"]
    assert [cell["throughput_per_s"] is None for cell in value["cells"]] == [False, True, True]
    assert value["cells"][0]["published"] == {"P100": "219 images/s"}
    assert value["reference"]["change"] == pytest.approx(-0.1)
    assert value["reference"]["spread"] == pytest.approx(0.2)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [row["batch"] for row in rows] == ["16", "32", "64"]
    assert rows[0]["published: P100"] == "219 images/s"
    assert rows[2]["throughput_per_s"] == ""


def test_drift_of_a_single_measurement_is_null_with_the_reason(table: SweepTable) -> None:
    one = replace(table, references=table.references[:1])
    assert "reference cell: 1 throughput; drift needs two, as in a sweep of more than ten cells" in to_text(
        one
    )
    assert json.loads(to_json(one))["reference"]["change"] is None


def test_markdown_escapes_markup(table: SweepTable) -> None:
    assert "<b>" not in to_markdown(table)
