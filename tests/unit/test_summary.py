"""Tables of many results: incomparable results are separated, none is hidden, no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from suite.cli import main
from suite.compare.comparable import COMPARE_TASKS
from suite.compare.repeats import with_repeats
from suite.compare.result_row import ResultRow, checked_folders, checked_row, checked_rows, row_of
from suite.metrics.image import ImageSummary
from suite.metrics.metric import Metric
from suite.metrics.run import metrics_of
from suite.report.markdown import to_markdown
from suite.report.summary import (
    Table,
    harmless,
    tables_of,
    to_csv,
    to_csv_of_repeats,
    to_json,
)
from suite.report.summary_text import print_tables
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.forged_storage import CONVERSION
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


def read(*tables: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(tables))))


def shown(rows: list[ResultRow], width: int) -> str:
    """The tables as a terminal of ``width`` columns shows them."""
    out = io.StringIO()
    print_tables(tables_of(rows), Console(file=out, width=width, color_system=None))
    return out.getvalue()


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


def test_description_is_read_from_a_regular_file_of_limited_size_only(tmp_path: Path) -> None:
    folder = write_good(tmp_path / "results", Good())
    description, other = folder / "system.json", tmp_path / "other.json"
    other.write_text('{"submitter":"A","system_name":"B"}\n')
    description.write_bytes(other.read_bytes())
    assert (row_of(folder).submitter, row_of(folder).system) == ("A", "B")
    description.unlink()
    description.symlink_to(other)
    assert row_of(folder).submitter == ""
    description.unlink()
    os.mkfifo(description)
    assert row_of(folder).submitter == ""
    description.unlink()
    with description.open("wb") as file:
        file.truncate(1 << 40)  # too large for the memory, and sparse
    assert row_of(folder).submitter == ""


def test_csv_is_tidy_with_units_in_the_names() -> None:
    (table,) = tables_of([row(), row(run_id="another")])
    text = to_csv([table])
    assert len({line.count(",") for line in text.splitlines()}) == 1
    first = read(table)[0]
    assert float(first["throughput_per_s"]) == pytest.approx(100_000)
    assert first["unit"] == "samples"
    assert first["step_p50_ms"] == "10.0"
    assert first["peak_device_memory_bytes"] == ""
    numbers = [name for name in table.metric_columns if not name.startswith(("loss", "quality"))]
    assert all(
        name.endswith(("_per_s", "_percent", "_ms", "_s", "_bytes", "_cores", "_w", "_j_per_unit"))
        for name in numbers
    )


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_cannot_be_formulas(start: str) -> None:
    (table,) = tables_of([row(submitter=start + "cmd()", device=start + "1+1")])
    (cells,) = read(table)
    for name in ("submitter", "device"):
        assert cells[name].startswith(("'", "\\"))
    assert cells["submitter"].endswith("cmd()")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results of several kinds: throughput, quality, a conversion, one without a score."""
    folder = tmp_path_factory.mktemp("results")
    goods = (
        Good(),
        Good(mode="quality", run_hex="00000001"),
        CONVERSION,
        Good(out_of_memory_in=2, run_hex="2" * 8),
    )
    for good in goods:
        write_good(folder, good)
    return folder


def test_csv_is_one_table_of_all_results_with_numeric_columns(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", str(results), "--format", "csv"]) == 0
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert len(frame) == 4
    assert set(frame["mode"]) == {"throughput", "quality", "conversion"}
    assert frame["run_id"].is_unique
    suffixes = (
        "_per_s",
        "_percent",
        "_ms",
        "_s",
        "_bytes",
        "_cores",
        "_w",
        "_mhz",
        "_c",
        "threads",
        "devices",
    )
    numbers = [
        name for name in frame if name.endswith(suffixes) or name.startswith(("loss", "quality", "batch"))
    ]
    assert len(numbers) > 30
    assert {name for name in numbers if not pd.api.types.is_numeric_dtype(frame[name])} == set()
    score = frame.set_index("status").loc["OOM"]
    assert pd.isna(score["throughput_per_s"])
    assert pd.to_datetime(frame["started"]).dt.tz is not None


def test_csv_of_repeats_has_a_row_for_each_repeat_of_a_result_with_a_score(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", str(results), "--format", "csv-repeats", "--mode", "throughput"]) == 0
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(frame["repeat"]) == [0, 1, 2, 3, 4]
    (folder,) = results.glob(f"*-ncf-*-{Good().run_hex}")
    found = row_of(folder)
    windows = frame["units"] / frame["throughput_per_s"]
    whole = found.metrics["throughput_per_s"].value
    assert frame["units"].sum() / windows.sum() == pytest.approx(whole)
    assert not {"cv_percent", "throughput_low_per_s", "quality", "files_read_bytes"} & set(frame)
    assert frame["step_p50_ms"].notna().all()


def test_repeats_of_a_log_that_changed_since_it_was_checked_are_refused(tmp_path: Path) -> None:
    write_good(tmp_path, Good())
    ((folder, row_then),) = checked_folders([tmp_path]).items()
    with pytest.raises(ValueError, match="changed while the command ran"):
        list(with_repeats({folder: replace(row_then, digest="0" * 64)}))
    assert to_csv_of_repeats(()) == ""


# ---- the terminal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 200])
def test_what_rows_share_is_said_once_and_what_differs_is_a_column(width: int) -> None:
    """Two runs that differ in their threads alone never look like repeats of one another."""
    rows = [row(settings={"threads": 1}), row(settings={"threads": 99}, run_id="2-another1")]
    text = shown(rows, width)
    assert max(map(len, text.splitlines())) <= width
    heading, shared, *rest = text.splitlines()
    (at,) = [number for number, line in enumerate(rest) if "throughput  " in line]
    head, _, first, second = rest[at : at + 4]
    assert heading == "practice division, real data, throughput mode: 2 results"
    assert shared.startswith("all: ncf f8, pytorch, train, fp32, mini scale, batch 256, 1 device")
    assert head.split()[:2] == ["threads", "throughput"]
    assert [first.split()[0], second.split()[0]] == ["1", "99"]
    assert text.count("ncf f8") == 1
    assert "100,000 samples/s" in first


def test_many_settings_that_differ_are_footnotes() -> None:
    """A column for each would leave no room for the others."""
    ours = {"collective": "nccl", "fingerprint": False, "reuse_compiled": True, "variables.NCCL_X": "0"}
    rows = [
        row(settings={"threads": 1, "fingerprint": True}),
        row(settings={"threads": 1, **ours}, run_id="2-b"),
    ]
    lines = shown(rows, 120).splitlines()
    assert any(line.split()[:1] == ["further"] for line in lines)
    assert "[1] collective=nccl, fingerprint=false, reuse_compiled=true, variables.NCCL_X=0" in lines
    assert "[2] fingerprint=true" in lines


def test_settings_that_do_not_fit_are_footnotes_and_words_stay_whole() -> None:
    """Columns of two letters cannot be read; the device and the status stay columns."""
    systems = {"one": "NVIDIA H100 80GB HBM3", "four": "NVIDIA H200"}
    rows = [
        row(
            settings={"threads": at},
            run_id=f"{at}-b",
            device=device,
            system=f"the machine of {name}",
            rules=f"{at}.0",
        )
        for at, (name, device) in enumerate(systems.items())
    ]
    assert "the machine of one" in shown(rows, 200).split("further settings")[0]
    text = shown(rows, 60)
    table, _, notes = text.partition("further settings:")
    assert "the machine of" not in table
    assert "rules=1.0, system=the machine of four" in notes
    assert "NVIDIA H100" in table
    assert sum(line.endswith(("0-b", "1-b")) for line in table.splitlines()) == 2
    assert sum("100,000 samples/s" in line for line in table.splitlines()) == 2
    assert max(map(len, text.splitlines())) <= 60


def test_no_word_is_broken_in_a_narrow_terminal() -> None:
    """Settings that leave no room for whole words become footnotes, down to the phase and the framework."""
    changes: tuple[dict[str, Any], ...] = (
        {"workload": "resnet50_cifar10", "framework": "tensorflow", "phase": "infer", "precision": "bf16"},
        {"workload": "faster_rcnn", "variant": "r50-fpn", "devices": 2, "strategy": "independent"},
        {"workload": "ncf", "batch_per_device": 1_048_576, "cache": "cold", "scale": "reference"},
    )
    rows = [
        row(key={**row().key, **change}, status=status, run_id=f"{at}-12345678", settings={"threads": 2})
        for at, (change, status) in enumerate(zip(changes, ("accepted", "rejected", "OOM"), strict=True))
    ]
    whole = set(shown(rows, 300).replace(",", " ").replace("=", " ").split())
    for width in (60, 72, 80, 100):
        text = shown(rows, width)
        assert max(map(len, text.splitlines())) <= width
        words = set(text.split("Rows compare")[0].replace(",", " ").replace("=", " ").split())
        cut = {word for word in words - whole if not word.startswith(("[", "\u2500"))}
        cut -= {"further", "settings:", "room", "no", "for:", "12345678"}
        assert cut <= ({"resnet50_ci…"} if width == 60 else set()), text


def test_footnote_about_the_run_id_only_where_it_is_shortened() -> None:
    rows = [row(settings={"threads": 1}), row(settings={"threads": 1}, run_id="2-another1")]
    assert "run: the last 8 characters of the run id" in shown(rows, 80)
    wide = shown(rows, 200)
    assert RUN_ID in wide
    assert "characters of the run id" not in wide
    assert ", 1 thread," in wide
    assert "2 threads" in shown([row(settings={"threads": 2})], 200)


def test_figure_of_few_rows_gives_way_to_one_of_all() -> None:
    """The interval of one result among several of one repeat each, where step times have no room."""
    bare = {name: one for name, one in row().metrics.items() if not name.startswith("throughput_low")}
    rows = [row(), *(row(metrics=bare, run_id=f"{at}-12345678") for at in range(2))]
    (head,) = [line for line in shown(rows, 60).splitlines() if "throughput  " in line]
    assert "step p50" in head
    assert "\u00b1 95 %" not in head


def test_rows_are_in_the_order_of_their_numbers() -> None:
    rows = [row(key={**row().key, "batch_per_device": batch}, run_id=f"{batch}") for batch in (256, 1024, 64)]
    (table,) = tables_of(rows)
    assert [one.run_id for one in table.rows] == ["64", "256", "1024"]


def test_wider_terminal_shows_more_figures_and_the_whole_run_id() -> None:
    narrow, wide = shown([row()], 60), shown([row()], 200)
    assert RUN_ID[-8:] in narrow
    assert RUN_ID not in narrow
    assert "no room for: " in narrow
    assert RUN_ID in wide
    assert "step p99" in wide.splitlines()[2]


def test_result_without_a_score_has_its_status_and_cause() -> None:
    rows = [row(), row(status="OOM", why="aborted in repeat 0", metrics={}, run_id="2-12345678")]
    text = shown(rows, 80)
    assert "12345678 OOM: aborted in repeat 0" in text
    (line,) = [line for line in text.splitlines() if line.endswith("12345678")]
    assert line.split() == ["OOM", "OOM", "12345678"]


def test_filters_select_rows_and_name_what_there_is(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def selected(*options: str) -> int:
        assert main(["summary", str(results), "--format", "json", *options]) == 0
        return sum(len(table["results"]) for table in json.loads(capsys.readouterr().out)["tables"])

    assert selected() == 4
    assert selected("--workload", "ncf") == 3
    assert selected("--workload", "ncf,resnet50", "--scale", "mini") == 4
    assert selected("--workload", "ncf,resnet50", "--framework", "pytorch") == 3
    assert selected("--phase", "infer") == 0
    assert selected("--since", "2000-01-01") == 4
    assert selected("--since", "9000-01-01T10:00") == 0
    assert selected("--since", "1h") == 0  # the imagined runs are older
    assert selected("--here") == 0  # on an imagined machine
    assert main(["summary", str(results), "--workload", "nfc"]) == 0
    error = capsys.readouterr().err
    assert error == "summary: no results found: no workload nfc among 4 results; there are ncf, resnet50\n"


def test_here_selects_results_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Host names are in no log: processor, memory and accelerators identify a machine."""
    from suite.cli import summary

    folder = write_good(tmp_path, Good())
    here = dict(row_of(folder).machine)
    for machine, count in (
        (here, 1),
        (here | {"memory.total_bytes": 1}, 0),
        (here | {"accelerators": ["a"]}, 1),
    ):
        monkeypatch.setattr(summary, "_machine", lambda machine=machine: machine)
        assert main(["summary", str(tmp_path), "--here", "--format", "csv"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == (2 if count else 0)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "7w", "-1d"])
def test_wrong_time_is_explained(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["summary", f"--since={text}"])
    assert stop.value.code == 2
    assert "expected a date such as 2026-11-24" in capsys.readouterr().err


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
    assert (made.status, made.why) == ("OOM", "in repeat 2, phase setup: out_of_memory")
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
