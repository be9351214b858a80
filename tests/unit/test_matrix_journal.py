"""The journal of a matrix: what left no result, and who may run here."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from suite.plan.errors import StorageProblem
from suite.sweep.journal import JOURNAL, JournalLine, append, latest, locked, read

LINE = JournalLine(
    "2026-11-20T18:00:00Z",
    ("workload=ncf", "framework=mxnet"),
    "c" * 64,
    "failed",
    20,
    'crashed: "x"\u2028\n',
    ("practice", "mini", "real", "throughput"),
    {"workload": "ncf", "batch_per_device": 256},
)


def test_lines_come_back_as_they_were_and_the_last_counts(tmp_path: Path) -> None:
    again = replace(LINE, status="N/A", exit_code=11)
    with locked(tmp_path) as journal:
        append(journal, LINE)
        append(journal, again)
    assert read(tmp_path) == (LINE, again)
    assert latest(read(tmp_path), LINE.words, LINE.code) == again
    assert latest(read(tmp_path), LINE.words, "d" * 64) is None
    assert latest(read(tmp_path), ("workload=gnmt",), LINE.code) is None


def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path) -> None:
    with locked(tmp_path) as journal:
        append(journal, LINE)
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole + whole[:30] + b"\n" + whole)
    assert read(tmp_path) == (LINE, LINE)


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert read(tmp_path) == ()


def test_two_matrices_do_not_run_in_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StorageProblem, match="another matrix"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_run_that_outlives_its_matrix_still_keeps_the_folder(tmp_path: Path) -> None:
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
