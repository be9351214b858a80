"""Tables of many results: incomparable results are separated, none is hidden, no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.compare.comparable import COMPARE_TASKS
from suite.compare.result_row import ResultRow, checked_row, checked_rows, row_of
from suite.metrics.image import ImageSummary
from suite.metrics.metric import Metric
from suite.metrics.run import metrics_of
from suite.report.markdown import to_markdown
from suite.report.summary import Table, harmless, tables_of, to_csv, to_json
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.good_container import Container
from tests.fixtures.good_log import Good, write_good
from tests.fixtures.report_records import KEY, RUN_ID, quality_record, throughput_record


def row(**changes: Any) -> ResultRow:
    key = {name: value for name, value in KEY.items() if name not in ("data", "batch")} | {
        "batch_per_device": 256
    }
    made = ResultRow(
        group=("practice", "real", "throughput"),
        key=key,
        status="accepted",
        why="",
        flags=0,
        unit="samples",
        device="Example CPU",
        submitter="",
        system="",
        run_id=RUN_ID,
        digest="0" * 64,
        metrics=metrics_of(throughput_record()),
    )
    return replace(made, **changes)


def read(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(table))))


def test_divisions_data_and_modes_never_share_a_table() -> None:
    groups = [
        (division, data, mode)
        for division in ("closed", "open", "practice")
        for data in ("real", "synthetic")
        for mode in ("throughput", "quality")
    ]
    tables = tables_of([row(group=name) for name in groups] * 2)
    assert len(tables) == len(groups)
    assert all(len(table.rows) == 2 for table in tables)
    assert {(table.division, table.data, table.mode) for table in tables} == set(groups)


def test_sandbox_returns_the_same_row(tmp_path: Path) -> None:
    folder = write_good(tmp_path / "results", Good())
    with Sandbox(COMPARE_TASKS) as sandbox:
        assert checked_row(sandbox, folder) == row_of(folder)
        assert sandbox.starts == 1
    [table] = tables_of(checked_rows([tmp_path]))
    assert table.rows == (row_of(folder),)
    assert {one["rules"] for one in read(table)} == {"practice"}


def test_result_over_sandbox_limit_has_rejected_row(tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good())
    with Sandbox(COMPARE_TASKS, wall_seconds=0.0) as sandbox:
        found = checked_row(sandbox, folder)
    assert (found.status, found.run_id, found.metrics) == ("rejected", folder.name, {})
    assert found.why.startswith("LOG-019: expected a check within the limits, found no answer within 0 s")


def test_csv_is_tidy_with_units_in_the_names() -> None:
    (table,) = tables_of([row(), row(run_id="another")])
    text = to_csv(table)
    assert len({line.count(",") for line in text.splitlines()}) == 1
    first = read(table)[0]
    assert float(first["throughput_per_s"]) == pytest.approx(100_000)
    assert first["unit"] == "samples"
    assert first["step_p50_ms"] == "10.0"
    assert first["peak_device_memory_bytes"] == ""
    numbers = [name for name in table.metric_columns if not name.startswith(("loss", "quality"))]
    assert all(
        name.endswith(("_per_s", "_percent", "_ms", "_s", "_bytes", "_cores", "_w")) for name in numbers
    )


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_cannot_be_formulas(start: str) -> None:
    (table,) = tables_of([row(submitter=start + "cmd()", device=start + "1+1")])
    (cells,) = read(table)
    for name in ("submitter", "device"):
        assert cells[name].startswith(("'", "\\"))
    assert cells["submitter"].endswith("cmd()")


def test_harmless_csv_values_are_unchanged() -> None:
    assert harmless(-1.5) == -1.5
    assert harmless(None) == ""
    assert harmless("plain") == "plain"


def test_results_without_a_score_show_status_and_reason() -> None:
    rows = [
        row(status="OOM", why="aborted in repeat 0", metrics={}),
        row(status="rejected", why="TIME-001: expected 1, found 2", metrics={}),
    ]
    (table,) = tables_of(rows)
    for cells in read(table):
        assert cells["throughput_per_s"] == ""
        assert cells["status"] in ("OOM", "rejected")
        assert cells["why"]
    text = to_markdown([table])
    assert "| OOM | " in text
    assert "OOM: aborted in repeat 0" in text
    assert "TIME-001" in text


def test_summary_shows_container_limits() -> None:
    limited = row(limits={"cpus": "1", "memory_bytes": 1 << 30}, limits_text="cpus 1, memory 1.00 GiB")
    (table,) = tables_of([limited, row()])
    first, second = read(table)
    assert [first["limit_cpus"], first["limit_memory_bytes"]] == ["", ""]
    assert [second["limit_cpus"], second["limit_memory_bytes"], second["limit_cpuset"]] == [
        "1",
        "1073741824",
        "",
    ]
    assert "(cpus 1, memory 1.00 GiB)" in to_markdown([table]).splitlines()[-1]


def test_container_result_names_its_image(tmp_path: Path) -> None:
    """By the checker's lock, which does not contain this image."""
    made = row_of(write_good(tmp_path, Good(container=Container(limits={"cpus": "2"}))))
    assert made.image == ImageSummary("imagined", False, "not in the lock")
    assert made.limits["cpus"] == "2"
    (table,) = tables_of([made])
    (cells,) = read(table)
    assert [cells["runtime"], cells["image"], cells["image_closed_ready"]] == ["docker", "imagined", "False"]
    assert "imagined (not closed-ready: not in the lock)" in to_markdown([table])


def test_summary_shows_out_of_memory_instead_of_score(tmp_path: Path) -> None:
    made = row_of(write_good(tmp_path, Good(out_of_memory_in=2)))
    assert made.status == "OOM"
    text = to_markdown(tables_of([made]))
    assert "| native | OOM |" in text
    assert json.loads(to_json(tables_of([made])))["tables"][0]["results"][0]["status"] == "OOM"


def test_markdown_cells_are_escaped() -> None:
    (table,) = tables_of([row(device="a|b\n<script>`x`", submitter="[link](http://example.org)")])
    lines = to_markdown([table]).splitlines()
    assert "<script>" not in lines[-1]
    assert "\\|b\\\\n&lt;script&gt;\\`x\\`" in lines[-1]
    assert "[link]" not in lines[-1].replace("\\[link\\]", "")
    bare = [line.replace("\\\\", "").replace("\\|", "").count("|") for line in lines if line.startswith("|")]
    assert len(set(bare)) == 1


def test_markdown_shows_rate_and_interval() -> None:
    (table,) = tables_of([row()])
    text = to_markdown([table])
    assert "100,000 samples/s" in text
    assert "91,927 to 109,628 samples/s" in text
    assert "## practice division, real data, throughput mode" in text


def test_json_gives_reasons_for_what_is_missing() -> None:
    (table,) = tables_of([row(metrics={"cv_percent": Metric(None, reason="too few")})])
    loaded = json.loads(to_json([table]))
    (result,) = loaded["tables"][0]["results"]
    assert result["cv_percent"] is None
    assert result["reasons"] == {"cv_percent": "too few"}


def test_summary_without_results_states_so() -> None:
    assert to_markdown([]) == "No results found.\n"


def trained(precision: str, value: float, **changes: Any) -> ResultRow:
    """The row of a quality run of one evaluation."""
    made = row(group=("practice", "real", "quality"), metrics=metrics_of(quality_record([value])))
    return replace(made, key={**made.key, "precision": precision, **changes})


def test_summary_shows_quality_loss_against_fp32() -> None:
    rows = [
        *(trained("fp32", 0.70), trained("fp32", 0.72, cache="cold"), trained("bf16", 0.695)),
        *(
            trained("fp16", 0.75),
            trained("bf16", 0.6, framework="mxnet"),
            trained("fp32", 0.9, scale="other"),
        ),
    ]
    (table,) = tables_of([*rows, trained("fp32", 0.1, batch_per_device=1)])
    found = {
        (one.key["precision"], one.key["framework"]): one.metrics["quality_less_fp32"]
        for one in table.rows
        if one.key["precision"] != "fp32"
    }
    assert found["bf16", "pytorch"].value == pytest.approx(-0.015)
    assert found["fp16", "pytorch"].value == pytest.approx(0.04)
    assert "2 fp32 results, 0.71" in found["fp16", "pytorch"].note
    assert found["bf16", "mxnet"].value is None
    assert "no fp32 result" in found["bf16", "mxnet"].reason
    assert all("quality_less_fp32" not in one.metrics for one in table.rows if one.key["precision"] == "fp32")
    cells = [cell["quality_less_fp32"] for cell in read(table)]
    assert sorted(cell != "" for cell in cells) == [False] * 5 + [True] * 2
    assert "| less fp32 |" in to_markdown([table])
    assert "no fp32 result" in to_json([table])


def test_rejected_fp32_result_is_no_reference() -> None:
    rejected = replace(trained("fp32", 0.7), metrics={}, status="rejected")
    ((one, _),) = ([*table.rows] for table in tables_of([trained("bf16", 0.7), rejected]))
    assert one.metrics["quality_less_fp32"].value is None
    (throughput,) = tables_of([row(key={**KEY, "batch_per_device": 1, "precision": "bf16"})])
    assert "quality_less_fp32" not in throughput.rows[0].metrics
