"""Longer windows and other numbers of repeats: the log, the rules, and what the figures say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.audit.quote import fields_of, parse, sentence
from suite.checker import check_result
from suite.compare.comparable import MEANING, comparable_of
from suite.compare.result_row import row_of
from suite.contract import MEASURED_STEPS, WARMUP_STEPS, units_of_window
from suite.log.reader import read_result
from suite.metrics.long_run import ANONYMOUS, DRIFT, PAGE_CACHE, long_run_text
from suite.metrics.run import metrics_of
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import Good, write_good

DECLARED = (("DIV-015", "longer windows"),)
LONG = Good(counts=(3, 1000), step_ns=5_000_000, differences=DECLARED)


def long_run(folder: Path, **changes: Any) -> dict[str, str]:
    """The sentences about a run, by their labels."""
    verdict = check_result(write_good(folder, replace(LONG, **changes)))
    assert verdict.record is not None
    assert verdict.rejections == verdict.flags == ()
    return dict(long_run_text(verdict.record, metrics_of(verdict.record)))


def test_units_of_a_longer_window_repeat_those_of_the_usual_one() -> None:
    usual = tuple(range(WARMUP_STEPS + MEASURED_STEPS))
    assert units_of_window(usual, MEASURED_STEPS) == usual
    longer = units_of_window(usual, 2 * MEASURED_STEPS)
    assert longer == (*usual, *usual[WARMUP_STEPS:])


def test_a_leak_is_found_and_a_run_without_one_has_none(tmp_path: Path) -> None:
    with_leak = long_run(tmp_path / "leak", leak=10_240)["anonymous memory"]
    assert with_leak.startswith("grows: 10.")
    assert "in 1,000 steps" in with_leak
    without = long_run(tmp_path / "none")
    assert without["anonymous memory"].startswith("no growth found: ")
    assert without["page cache"] == "no growth found: 0 B a step (95 % interval 0 B to 0 B)"


def test_growth_of_unreadable_memory_keeps_the_reason_of_the_samples(tmp_path: Path) -> None:
    def unreadable(events: Events) -> None:
        for event in events:
            if event["kind"] == "telemetry" and event["data"]["source"] == "sample":
                event["data"]["processes"]["anonymous_bytes"] = None
            if event["kind"] == "repeat_end":
                event["data"]["reasons"]["telemetry.processes.anonymous_bytes"] = "Permission denied"

    record = read_result(rewrite(write_good(tmp_path, LONG), unreadable))
    assert metrics_of(record)[ANONYMOUS].reason == "Permission denied"


def test_drift_is_found_in_percent_per_1000_steps(tmp_path: Path) -> None:
    assert long_run(tmp_path / "none")["drift"].startswith("none found: ")
    text = long_run(tmp_path / "slower", trend=0.02)["drift"]
    assert text.startswith(("steps get slower: +1.9", "steps get slower: +2"))


def test_windows_that_are_too_short_say_so_and_name_the_option(tmp_path: Path) -> None:
    usual = metrics_of(check_result(write_good(tmp_path)).record)  # type: ignore[arg-type]
    for name in (DRIFT, ANONYMOUS, PAGE_CACHE):
        assert "windows of 100 steps are too short to show one: STEPS=1000" in usual[name].reason
    few_seconds = long_run(tmp_path / "fast", step_ns=1_000_000)["anonymous memory"]
    assert "where a slope needs 3: MIN_SECONDS=10" in few_seconds


def test_a_log_without_the_field_has_a_reason(tmp_path: Path) -> None:
    from suite.log.reader import read_result

    record = read_result(write_good(tmp_path, LONG))
    for event in record.all("telemetry"):
        event.data["processes"].pop("anonymous_bytes")
    assert metrics_of(record)[ANONYMOUS].reason == "processes.anonymous_bytes is not in the log"


def test_counts_are_apart_in_the_quote_the_summary_and_a_comparison(tmp_path: Path) -> None:
    folder = write_good(tmp_path, LONG)
    verdict = check_result(folder)
    assert verdict.record is not None
    quoted = sentence(fields_of(verdict.record, "L0", None))
    assert ", with 3 repeats of 1,000 steps, practice division" in quoted
    assert parse(quoted)["apart"] == ", with 3 repeats of 1,000 steps"
    assert row_of(folder, verdict).limits_text == "3 repeats of 1,000 steps"
    assert comparable_of(verdict.record, verdict)["facts"][MEANING]["steps"] == 1000


@pytest.mark.parametrize("counts", [(1, 100), (20, 100), (2, 300)])
def test_declared_counts_are_accepted(counts: tuple[int, int], tmp_path: Path) -> None:
    verdict = check_result(write_good(tmp_path, replace(LONG, counts=counts)))
    assert verdict.rejections == ()
