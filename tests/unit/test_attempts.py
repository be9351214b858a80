"""The ledger of attempts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from suite.contract import Key
from suite.harness.attempts import LEDGER, count_attempt, next_attempt

KEY = Key("ncf", "pytorch", "train", "offline", "fp32", 256, 1, "mini", "real", "warm", "f8")


def test_trials_before_any_submission_are_not_counted(tmp_path: Path) -> None:
    assert [count_attempt(tmp_path, KEY, "trial", f"run-{i}") for i in range(3)] == [1, 1, 1]
    assert not (tmp_path / LEDGER).exists()


def test_runs_after_first_submission_are_counted(tmp_path: Path) -> None:
    purposes = ["trial", "submission", "trial", "submission"]
    counted = [count_attempt(tmp_path, KEY, purpose, f"run-{i}") for i, purpose in enumerate(purposes)]
    assert counted == [1, 1, 2, 3]
    assert len((tmp_path / LEDGER).read_text().splitlines()) == 3


def test_benchmarks_are_counted_separately(tmp_path: Path) -> None:
    other = replace(KEY, precision="bf16")
    assert count_attempt(tmp_path, KEY, "submission", "a") == 1
    assert count_attempt(tmp_path, other, "trial", "b") == 1
    assert count_attempt(tmp_path, other, "submission", "c") == 1
    assert count_attempt(tmp_path, KEY, "trial", "d") == 2


def test_next_attempt_does_not_count(tmp_path: Path) -> None:
    assert next_attempt(tmp_path, KEY) == 1
    assert not (tmp_path / LEDGER).exists()
    count_attempt(tmp_path, KEY, "submission", "a")
    assert [next_attempt(tmp_path, KEY) for _ in range(2)] == [2, 2]
    assert next_attempt(tmp_path, replace(KEY, precision="bf16")) == 1
