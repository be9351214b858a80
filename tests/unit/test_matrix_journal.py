"""The journal of a matrix: cells without a result, and the lock of the results folder."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from suite.plan.errors import StorageProblem
from suite.sweep.journal import JOURNAL, JournalLine, SweepLine, append, last_seed, latest, locked, read

LINE = JournalLine(
    ("workload=ncf", "framework=mxnet"),
    "c" * 64,
    "error",
    20,
    'crashed: "x"\u2028\n',
    ("practice", "mini", "real", "throughput"),
    {"workload": "ncf", "batch_per_device": 256},
    wall="2026-11-20T18:00:00Z",
)


def test_journal_returns_its_lines_and_the_latest_of_a_cell(tmp_path: Path) -> None:
    again = replace(LINE, outcome="skipped", exit_code=11)
    with locked(tmp_path) as journal:
        append(journal, LINE)
        append(journal, again)
    assert read(tmp_path) == (LINE, again)
    assert latest(read(tmp_path), LINE.options, LINE.code) == again
    assert latest(read(tmp_path), LINE.options, "d" * 64) is None
    assert latest(read(tmp_path), ("workload=gnmt",), LINE.code) is None


def test_line_after_an_incomplete_one_is_kept(tmp_path: Path) -> None:
    with locked(tmp_path) as journal:
        append(journal, LINE)
    (tmp_path / JOURNAL).write_bytes((tmp_path / JOURNAL).read_bytes() * 2 + b'{"code": "cc')
    with locked(tmp_path) as journal:
        append(journal, LINE)
    assert read(tmp_path) == (LINE, LINE, LINE)


def test_seed_of_a_sweep_is_that_of_its_last_command(tmp_path: Path) -> None:
    assert last_seed(tmp_path, "a") is None
    with locked(tmp_path) as journal:
        for line in (SweepLine("a", 1, 30), LINE, SweepLine("b", 2, 30), SweepLine("a", 3, 30)):
            append(journal, line)
    assert [last_seed(tmp_path, sweep) for sweep in ("a", "b", "c")] == [3, 2, None]
    assert read(tmp_path) == (LINE,)


def test_incomplete_line_is_skipped(tmp_path: Path) -> None:
    with locked(tmp_path) as journal:
        append(journal, LINE)
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole + whole[:30] + b"\n" + whole)
    assert read(tmp_path) == (LINE, LINE)


def test_missing_journal_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path) == ()


def test_second_matrix_in_a_folder_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StorageProblem, match="another matrix"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_run_of_a_killed_matrix_keeps_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path) as journal:
        left = subprocess.Popen(["sleep", "60"], pass_fds=(journal,))
    try:
        with pytest.raises(StorageProblem, match="the last run of one"), locked(tmp_path):
            pass
    finally:
        left.kill()
        left.wait()
    with locked(tmp_path):
        pass


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageProblem, match="set RESULTS_DIR"), locked(tmp_path / "file"):
        pass
