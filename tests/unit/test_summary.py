"""Tables of many results: nothing mixed, nothing hidden, nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from suite.report.figures import Figure, figures
from suite.report.summary import Row, Table, group, harmless, to_csv, to_json, to_markdown
from tests.fixtures.report_records import KEY, RUN_ID, throughput_record


def row(**changes: Any) -> Row:
    key = {name: value for name, value in KEY.items() if name not in ("data", "batch")} | {
        "batch_per_device": 256
    }
    made = Row(
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
        figures=figures(throughput_record()),
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
    tables = group([row(group=name) for name in groups] * 2)
    assert len(tables) == len(groups)
    assert all(len(table.rows) == 2 for table in tables)
    assert {(table.division, table.data, table.mode) for table in tables} == set(groups)


def test_csv_is_tidy_with_units_in_the_names() -> None:
    (table,) = group([row(), row(run_id="another")])
    text = to_csv(table)
    assert len({line.count(",") for line in text.splitlines()}) == 1
    first = read(table)[0]
    assert float(first["throughput_per_s"]) == pytest.approx(100_000)
    assert first["unit"] == "samples"
    assert first["step_p50_ms"] == "10.0"
    assert first["peak_device_memory_bytes"] == ""
    numbers = [name for name in table.measured if not name.startswith(("loss", "quality"))]
    assert all(
        name.endswith(("_per_s", "_percent", "_ms", "_s", "_bytes", "_cores", "_w")) for name in numbers
    )


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_cannot_be_formulas(start: str) -> None:
    (table,) = group([row(submitter=start + "cmd()", device=start + "1+1")])
    (cells,) = read(table)
    for name in ("submitter", "device"):
        assert cells[name].startswith(("'", "\\"))
    assert cells["submitter"].endswith("cmd()")


def test_numbers_stay_numbers() -> None:
    assert harmless(-1.5) == -1.5
    assert harmless(None) == ""
    assert harmless("plain") == "plain"


def test_results_without_a_score_are_shown_as_such() -> None:
    rows = [
        row(status="out_of_memory", why="aborted in repeat 0", figures={}),
        row(status="rejected", why="TIME-001: expected 1, found 2", figures={}),
    ]
    (table,) = group(rows)
    for cells in read(table):
        assert cells["throughput_per_s"] == ""
        assert cells["status"] in ("out_of_memory", "rejected")
        assert cells["why"]
    text = to_markdown([table])
    assert "out of memory: aborted in repeat 0" in text
    assert "TIME-001" in text


def test_markdown_cells_cannot_break_out() -> None:
    (table,) = group([row(device="a|b\n<script>`x`", submitter="[link](http://example.org)")])
    lines = to_markdown([table]).splitlines()
    assert "<script>" not in lines[-1]
    assert "\\|b\\\\n&lt;script&gt;\\`x\\`" in lines[-1]
    assert "[link]" not in lines[-1].replace("\\[link\\]", "")
    bare = [line.replace("\\\\", "").replace("\\|", "").count("|") for line in lines if line.startswith("|")]
    assert len(set(bare)) == 1


def test_markdown_shows_the_interval_beside_the_rate() -> None:
    (table,) = group([row()])
    text = to_markdown([table])
    assert "100,000 samples/s" in text
    assert "91,927 samples/s - 109,628 samples/s" in text
    assert "## practice division, real data, throughput mode" in text


def test_json_gives_reasons_for_what_is_missing() -> None:
    (table,) = group([row(figures={"cv_percent": Figure(None, reason="too few")})])
    loaded = json.loads(to_json([table]))
    (result,) = loaded["tables"][0]["results"]
    assert result["cv_percent"] is None
    assert result["reasons"] == {"cv_percent": "too few"}


def test_no_results_is_a_sentence() -> None:
    assert to_markdown([]) == "No results found.\n"
