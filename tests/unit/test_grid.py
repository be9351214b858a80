"""The table of a matrix: which results share a table or a row, and the text of cells without a number."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.compare.result_row import row_of
from suite.report.grid import FAILED, GridEntry, entry_of, grids, to_csv, to_json, to_markdown, to_text
from tests.fixtures.forged_storage import IN_RECORDS
from tests.fixtures.good_log import MINI, Good, write_good

STORAGE = ((None, "0a1b2c3d"), ("recordio", "1a1b2c3d"))
WINDOW_NS = 200_000_000  # about the length of the synthetic windows


def measured(tmp_path: Path, good: Good | None = None, **key: Any) -> GridEntry:
    good = good or Good(input_wait_ns=1_000_000)
    return entry_of(row_of(write_good(tmp_path, replace(good, key=replace(MINI, **key)))))


def missing(status: str = "N/A", why: str = "not here", **key: Any) -> GridEntry:
    fields = {"workload": "ncf", "framework": "mxnet", "phase": "train", "precision": "fp32"}
    key = {"devices": 1, "nodes": 1, **key}
    return GridEntry(("practice", "mini", "real", "throughput"), {**fields, **key}, status, why)


def test_table_has_a_column_per_framework_and_a_row_per_benchmark(tmp_path: Path) -> None:
    entries = [
        measured(tmp_path, framework=framework, phase=phase)
        for framework in ("pytorch", "tensorflow")
        for phase in ("train", "infer")
    ]
    (table,) = grids(entries)
    assert table.frameworks == ("pytorch", "tensorflow")
    assert [name for name, _ in table.rows] == [
        "ncf f8 train fp32 batch 256",
        "ncf f8 infer fp32 batch 256",
    ]
    assert all(cell is not None and cell.text.endswith(" samples/s") for _, row in table.rows for cell in row)
    assert table.devices == "Imagined CPU"


def test_storage_formats_have_separate_rows(tmp_path: Path) -> None:
    logs = [write_good(tmp_path, replace(IN_RECORDS, storage=name, run_hex=hex_)) for name, hex_ in STORAGE]
    by_storage = [entry_of(row_of(log)) for log in logs]
    assert [entry.limits for entry in by_storage] == ["", "from recordio"]
    (table,) = grids(by_storage)
    assert len(table.rows) == 2


@pytest.mark.parametrize(
    "group",
    [
        ("open", "mini", "real", "throughput"),
        ("practice", "reference", "real", "throughput"),
        ("practice", "mini", "synthetic", "throughput"),
        ("practice", "mini", "real", "quality"),
    ],
)
def test_groups_that_must_not_be_compared_have_separate_tables(
    group: tuple[str, str, str, str], tmp_path: Path
) -> None:
    entry = measured(tmp_path)
    assert len(grids([entry, replace(entry, group=group)])) == 2


@pytest.mark.parametrize(
    "change",
    [{"batch_per_device": 512}, {"precision": "bf16"}, {"cache": "cold"}, {"devices": 2}, {"variant": "f64"}],
)
def test_other_benchmark_keys_have_separate_rows(change: dict[str, Any], tmp_path: Path) -> None:
    entry = measured(tmp_path)
    (table,) = grids([entry, replace(entry, key={**entry.key, **change})])
    first, second = (name for name, _ in table.rows)
    assert first != second


def test_limits_have_separate_rows(tmp_path: Path) -> None:
    entry = measured(tmp_path)
    (table,) = grids([entry, replace(entry, limits="cpus 2")])
    assert [name.endswith("(cpus 2)") for name, _ in table.rows] == [False, True]


def in_all_formats(entries: list[GridEntry]) -> list[list[str]]:
    """The cells of one table in every format: (options, status) in CSV and JSON, whole rows otherwise."""
    tables = grids(entries)
    rows = csv.DictReader(io.StringIO(to_csv(tables)))
    (found,) = json.loads(to_json(tables))["tables"]
    return [
        [line for line in to_text(tables).splitlines() if line.startswith("ncf ")],
        [line for line in to_markdown(tables).splitlines() if line.startswith("| ncf ")],
        [f"{row['options']} {row['status']}" for row in rows],
        [f"{cell['options']} {cell['status']}" for cell in found["cells"]],
    ]


def test_cells_that_differ_in_an_option_have_separate_rows_in_every_format(tmp_path: Path) -> None:
    one = measured(tmp_path)
    entries = [
        replace(one, options={"framework": "pytorch", "framework.threads": "1"}),
        replace(one, options={"framework": "pytorch", "framework.threads": "2"}, status=FAILED, row=None),
        replace(one, key={**one.key, "framework": "jax"}, options={"framework": "jax", "nonce": "1"}),
    ]
    for shown in in_all_formats(entries):
        first, second, other = shown
        assert "framework.threads=1" in first.replace("\\", "")
        assert "framework.threads=2" in second.replace("\\", "")
        assert "failed" in second
        assert "nonce=1" in other
    (table,) = grids(entries)
    assert [[cell.status if cell else "-" for cell in cells] for _, cells in table.rows] == [
        ["accepted", "-"],
        ["failed", "-"],
        ["-", "accepted"],
    ]


def test_options_of_frameworks_with_one_cell_each_leave_one_row(tmp_path: Path) -> None:
    """A study may give each framework an option of its own."""
    one = measured(tmp_path)
    jax = replace(one, key={**one.key, "framework": "jax"}, options={"framework": "jax", "batch": "256"})
    (table,) = grids([replace(one, options={"framework": "pytorch", "data": "real"}), jax])
    ((name, cells),) = table.rows
    assert name == "ncf f8 train fp32 batch 256"
    assert None not in cells


def test_matrix_shows_every_cell_of_an_axis_without_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_pair = ["--workload", "ncf", "--framework", "pytorch", "--phase", "train"]
    folder = ["--results-dir", str(tmp_path)]
    assert main(["matrix", *one_pair, *folder, "launcher=slurm", "runtime.cpus=1,2,4"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ncf ")]
    assert [row.split()[-2:] for row in rows] == [[f"runtime.cpus={count}", "N/A"] for count in (1, 2, 4)]


def test_cause_of_a_cell_is_as_long_in_markdown_as_in_text() -> None:
    why = f"{'a' * 300} end"
    entries = [missing(why=why)]
    assert f"N/A: {why} [ncf train fp32 in mxnet]" in to_text(grids(entries))
    assert f"N/A: {why} " in to_markdown(grids(entries))


def test_cell_without_a_number_has_a_reason(tmp_path: Path) -> None:
    memory = measured(tmp_path, Good(out_of_memory_in=0))
    entries = [memory, missing(variant="f8", scenario="offline", batch_per_device=256, cache="warm")]
    (table,) = grids(entries)
    assert [cell.text for cell in table.rows[0][1] if cell] == ["OOM", "N/A"]
    assert all(entry.settled for entry in entries)
    assert not missing("failed").settled
    assert not missing("not run", "").settled
    text = to_text([table])
    assert "N/A: not here [ncf f8 train fp32 batch 256 in mxnet]" in text
    assert "out_of_memory" in text


def test_missing_cell_is_a_dash(tmp_path: Path) -> None:
    entries = [measured(tmp_path), measured(tmp_path, framework="mxnet", phase="infer")]
    lines = to_text(grids(entries)).splitlines()
    assert lines[2].endswith("  -")
    assert lines[3].split("  ")[-1] != "-"


@pytest.mark.parametrize(("share", "bound"), [(0.05, False), (0.3, True)])
def test_run_that_waited_for_input_is_input_bound(tmp_path: Path, share: float, bound: bool) -> None:
    entry = measured(tmp_path, Good(input_wait_ns=int(share * WINDOW_NS)))
    assert entry.input_bound is bound
    assert ("input-bound" in entry.text) is bound
    assert "samples/s" in entry.text


def test_input_bound_is_unknown_without_a_measured_wait() -> None:
    assert missing().input_bound is None


def test_csv_and_json_contain_every_cell_with_numbers_or_null(tmp_path: Path) -> None:
    entry = measured(tmp_path)
    tables = grids(
        [entry, missing(why="=cmd()"), measured(tmp_path, Good(out_of_memory_in=0, run_hex="a" * 8))]
    )
    rows = list(csv.DictReader(io.StringIO(to_csv(tables))))
    assert [row["status"] for row in rows] == ["OOM", "N/A"]  # the newest entry of a cell wins
    assert rows[1]["why"] == "'=cmd()"
    (found,) = json.loads(to_json(grids([entry])))["tables"]
    (cell,) = found["cells"]
    assert entry.row is not None
    assert cell["throughput_per_s"] == entry.row.metrics["throughput_per_s"].value
    assert cell["peak_device_memory_bytes"] is None
    assert (cell["input_bound"], cell["unit"]) == (False, "samples")


def test_markdown_escapes_markup_in_cells(tmp_path: Path) -> None:
    text = to_markdown(grids([measured(tmp_path), missing(why="<b>|x")]))
    assert "<b>" not in text
    assert "\\|x" in text


def test_differing_devices_are_named_by_framework(tmp_path: Path) -> None:
    one, other = measured(tmp_path), measured(tmp_path, framework="mxnet")
    assert one.row is not None
    (table,) = grids([replace(one, row=replace(one.row, device="NVIDIA H200")), other])
    assert table.devices == "pytorch: NVIDIA H200; mxnet: Imagined CPU"
