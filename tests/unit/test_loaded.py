"""``suite.load`` and ``suite.compare`` in a notebook: the content of the log, and whether it is accepted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import suite
from suite.compare.compare import NotComparable
from suite.compare.frames import table_of
from suite.compare.loaded import NotAccepted, Result, Results
from suite.log.reader import read_result
from suite.metrics.run import metrics_of
from tests.fixtures.forged_storage import CONVERSION
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import MINI, Good, reference, write_good

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of a machine with an accelerator."""
    return write_good(tmp_path_factory.mktemp("one"), reference())


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    """The loaded result."""
    found = suite.load(folder)
    assert isinstance(found, Result)
    return found


def events_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "run.jsonl").read_bytes().splitlines())
    return [event for event in lines if event["kind"] == kind]


def test_result_has_key_settings_metrics_and_verdict(result: Result, folder: Path) -> None:
    record = read_result(folder)
    assert (result.run_id, result.sha256) == (record.run_id, record.digest)
    assert result.key["batch"] == record.key.batch
    assert result.settings["threads"] == record.header["settings"]["threads"]
    assert dict(result.metrics) == metrics_of(record)
    assert result.accepted is True
    assert "accepted by the checker, rules 1.0" in repr(result)


def test_steps_have_decoded_floats_and_durations(result: Result, folder: Path) -> None:
    steps, events = result.steps, events_of(folder, "step")
    assert isinstance(steps, pd.DataFrame)
    assert list(steps.columns[:4]) == ["repeat", "rank", "step", "phase"]
    assert len(steps) == len(events) == 550
    assert list(steps["loss"]) == [float.fromhex(event["data"]["loss"]) for event in events]
    measured = steps[steps["phase"] == "measured"]
    assert list(measured["duration_ns"]) == list(read_result(folder).pooled_ns or ())
    assert steps.loc[steps["phase"] == "warmup", "duration_ns"].isna().all()
    assert measured["duration_ns"].dtype == "Int64"
    last = measured.groupby("repeat")["step_end_ns"].max()
    assert list(measured.groupby("repeat")["duration_ns"].sum()) == list(last)


def test_repeats_have_the_metrics_of_each_repeat(result: Result) -> None:
    repeats = result.repeats
    assert list(repeats["repeat"]) == [0, 1, 2, 3, 4]
    seconds = (repeats["units"] / repeats["throughput_per_s"]).sum()
    assert repeats["units"].sum() / seconds == pytest.approx(result.metrics["throughput_per_s"].value)


def test_telemetry_has_a_row_for_each_reading_and_device(result: Result, folder: Path) -> None:
    telemetry, events = result.telemetry, events_of(folder, "telemetry")
    assert len(telemetry) == sum(max(1, len(event["data"]["devices"] or ())) for event in events)
    energy = [device["energy_mj"] for event in events for device in event["data"]["devices"]]
    assert sorted(telemetry["energy_mj"]) == sorted(energy)
    assert telemetry.groupby("repeat")["offset_ns"].apply(lambda times: times.is_monotonic_increasing).all()
    assert {"host_memory_bytes", "processes_rss_bytes", "power_mw", "device"} <= set(telemetry)


def test_quality_and_conversion_are_read_too(tmp_path: Path) -> None:
    quality = suite.load(write_good(tmp_path / "quality", Good(mode="quality")))
    assert quality.evaluations["value"].iloc[-1] == pytest.approx(quality.metrics["quality"].value)
    converted = suite.load(write_good(tmp_path / "conversion", CONVERSION))
    assert converted.key["storage"] == "recordio"
    assert converted.metrics["files_read_bytes"].value


def test_folder_of_results_is_a_sequence_with_a_table(tmp_path: Path) -> None:
    for batch in (256, 512):
        write_good(tmp_path, Good(key=replace(MINI, batch=batch), run_hex=f"{batch:08d}"))
    found = suite.load(tmp_path)
    assert isinstance(found, Results)
    assert [one.key["batch"] for one in found] == [256, 512]
    assert list(found.table["batch"]) == [256, 512]
    assert found.table["throughput_per_s"].notna().all()
    assert len(found[:1]) == 1
    assert repr(found).startswith("<2 results>")
    with pytest.raises(FileNotFoundError, match="expected a result or a folder of results"):
        suite.load(tmp_path / "absent")


def longer(events: Events) -> None:
    """A longer window than the ranks report."""
    next(one for one in events if one["kind"] == "repeat_end")["data"]["window"]["ns"] += 1


def test_rejected_log_is_named_and_has_no_metrics(tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path, Good()), longer)
    with pytest.warns(UserWarning, match="rejected by the checker: .*: expected .* it has no metrics"):
        rejected = suite.load(folder)
    assert rejected.accepted is False
    assert dict(rejected.metrics) == {}
    assert len(rejected.steps) == 550
    assert "rejected by the checker" in repr(rejected)
    with pytest.raises(NotAccepted, match=r"A: .* is rejected"):
        suite.compare(rejected, folder)


def test_unchecked_log_says_so(tmp_path: Path) -> None:
    unchecked = suite.load(rewrite(write_good(tmp_path, Good()), longer), check=False)
    assert (unchecked.accepted, unchecked.verdict) == (None, None)
    assert unchecked.metrics["throughput_per_s"].value
    assert "not checked" in repr(unchecked)
    with pytest.raises(NotAccepted, match="not checked"):
        suite.compare(unchecked, unchecked)


def test_hostile_text_is_escaped_where_a_result_is_shown(tmp_path: Path) -> None:
    def forge(events: Events) -> None:
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "outside":
                event["data"]["facts"]["cpu"]["model"] = "\u202egpj.exe\u2028::error::x"

    folder = rewrite(write_good(tmp_path, Good()), forge)
    one, several = suite.load(folder), suite.load(tmp_path)
    assert one.accepted
    for line in f"{one!r}\n{several!r}".split("\n"):
        assert line.isprintable(), ascii(line)


@pytest.mark.parametrize("check", [True, False])
def test_broken_log_is_an_error_with_the_defect(check: bool, tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good())
    (folder / "run.jsonl").write_bytes(b"{}\n")
    with pytest.raises(ValueError, match=r"cannot be read: LOG-\d+: expected .*, found "):
        suite.load(folder, check=check)


def test_compare_takes_results_and_paths(tmp_path: Path) -> None:
    spread = (1.0, 1.004, 0.997, 1.002, 0.999)
    a = write_good(tmp_path / "a", Good(spread=spread))
    slow = Good(spread=tuple(1.1 * one for one in spread), run_hex="1b2c3d4e")
    b = suite.load(write_good(tmp_path / "b", slow))
    found = suite.compare(a, b)
    assert found.rows[0].conclusion == "slower"
    assert re.search(r"throughput: B is [89][.\d]* % \(.*\) slower than A", repr(found))
    with pytest.raises(ValueError, match="A and B are one log"):
        suite.compare(a, a)
    infer = write_good(tmp_path / "c", Good(key=replace(MINI, phase="infer")))
    with pytest.raises(NotComparable, match="phase: train and infer"):
        suite.compare(a, infer)
    bf16 = write_good(tmp_path / "d", Good(key=replace(MINI, precision="bf16"), spread=spread))
    assert repr(suite.compare(a, bf16)).splitlines()[-1].startswith("DIFFERENT SETTINGS")


# ---- environments --------------------------------------------------------------------------------------
WITHOUT = """
import sys
for name in {names}:
    sys.modules[name] = None  # as if it were not installed
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {names} else real(name, *rest)
import suite
result = suite.load({path!r})
print(type(result.steps).__module__, type(result.steps).__name__, result.repeats[0]["repeat"])
print(result.steps[0]["loss"], result.steps[0]["duration_ns"])
"""


def test_tables_are_lists_of_rows_without_pandas_and_arrow(folder: Path, result: Result) -> None:
    program = WITHOUT.format(names=("pandas", "pyarrow"), path=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["builtins list 0", f"{result.steps['loss'][0]} None"]


def test_tables_of_pandas_keep_integers_with_nulls_exact() -> None:
    large = (1 << 53) + 1
    frame = table_of({"ns": [large, None], "none": [None, None], "text": ["a", None]})
    assert frame["ns"][0] == large
    assert frame["none"].dtype == "float64"
    assert frame["text"].isna().sum() == 1


def test_import_of_suite_imports_nothing_else() -> None:
    """Workers import ``suite.…`` in containers that have none of the host's packages."""
    program = "import sys; before = set(sys.modules); import suite; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["suite"], done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        suite.laod  # noqa: B018
    assert {"load", "compare"} <= set(dir(suite))
