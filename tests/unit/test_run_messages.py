"""What a run prints about itself: its phases, other runs on the machine, warnings, and what disturbed it."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.cli.estimate import expected_time, warnings_of
from suite.harness import progress
from suite.harness.neighbours import announced
from suite.harness.progress import Progress
from suite.log.finding import Finding
from suite.log.model import Record
from suite.report.remarks import remarks
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import write_good
from tests.unit.test_plan import planned, settings


class Terminal(io.StringIO):
    """Standard error as a terminal of 40 columns."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the progress display reads, in seconds."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


@pytest.mark.usefixtures("clock")
def test_short_phases_print_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(5, unit="image")
    for name in ("import", "setup", "compile", "warmup"):
        shown.phase(0, name)
    shown.phase(0, "window", 2560)
    shown.finished(0, "10 images/s")
    assert capsys.readouterr().err.splitlines() == ["repeat 0 (1 of 5): 10 images/s, about 0 s left"]


def test_long_warmup_announces_length_of_the_window_and_its_speed(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress(5, unit="image")
    shown.phase(0, "compile")
    clock[0] += 300
    shown.phase(0, "warmup")
    assert capsys.readouterr().err == "repeat 0 (1 of 5): compile took 5 min; next: warm-up\n"
    clock[0] += 600
    shown.phase(0, "window", 2400)
    announced_window = capsys.readouterr().err
    assert (
        "warm-up took 10 min, about 4 images/s; the window takes about 100 min, until about"
        in announced_window
    )
    clock[0] += 5000
    shown.finished(0, "4.8 images/s", window_s=5000)
    shown.phase(1, "warmup")
    capsys.readouterr()
    clock[0] += 600
    shown.phase(1, "window", 2400)
    assert "the window takes about 83 min" in capsys.readouterr().err  # as long as the window before


def test_time_of_other_runs_is_not_that_of_a_phase(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress(5, unit="image")
    shown.phase(0, "fingerprint")
    shown.ended()
    clock[0] += 300  # a repeat of another run of the comparison
    shown.phase(1, "import")
    assert capsys.readouterr().err == ""


def test_terminal_shows_phases_and_nothing_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((47, 24)))
    shown = Progress(5, unit="sample")
    shown.phase(1, "warmup")
    until = time.monotonic() + 20
    while not re.search(r"\r\x1b\[2Krepeat 1 \(2 of 5\): warm-up, \d+ s$", terminal.getvalue()):
        assert time.monotonic() < until, terminal.getvalue()
        time.sleep(0.1)
    shown.phase(1, "window", 2560)
    within = terminal.getvalue()
    assert within.endswith("\r\x1b[2Krepeat 1 (2 of 5): window of 100 steps, about ")  # 46 columns
    time.sleep(1.2)
    assert terminal.getvalue() == within
    shown.finished(1, "done")
    assert terminal.getvalue()[len(within) :].startswith("\r\x1b[2Krepeat 1 (2 of 5): done")


def test_run_sees_other_runs_on_the_machine_while_they_measure() -> None:
    with announced("first-run") as others:
        assert "first-run" not in others
        with announced("second-run") as others:
            assert "first-run" in others
    with announced("third-run") as others:
        assert not {"first-run", "second-run"} & set(others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("framework.threads=8",), "8 threads on 2 cores: they wait for each other"),
        (("devices=2", "framework.threads=2"), "2 ranks with 2 threads each on 2 cores"),
        (("devices=4",), "DEVICES=2 uses no more than the cores"),
    ],
)
def test_more_threads_than_cores_are_warned_of(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    here = f"results_dir={tmp_path}"
    (warning,) = warnings_of(planned(settings(*options, here)))
    assert message in warning
    assert warnings_of(planned(settings("framework.threads=2", here))) == []


def test_run_of_more_than_an_hour_is_warned_of(tmp_path: Path) -> None:
    here = (f"results_dir={tmp_path}", f"data_root={tmp_path}")
    plan = planned(settings("scale=reference", *here, workload="resnet50"))
    seconds, text = expected_time(plan)
    assert seconds is not None
    assert seconds > 3600
    assert any(text in warning and "SCALE=mini" in warning for warning in warnings_of(plan))
    assert warnings_of(planned(settings(*here, workload="resnet50"))) == []


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of a quiet machine."""
    return write_good(tmp_path_factory.mktemp("good"))


def record_of(result: Path) -> Record:
    record = check_result(result).record
    assert record is not None
    return record


def finding(rule: str, location: str, found: str) -> Finding:
    return Finding(rule, "info", location, "", found, "")


def test_quiet_run_has_no_remarks(good: Path) -> None:
    verdict = check_result(good)
    assert remarks(record_of(good), verdict.findings) == []


def test_findings_about_spread_are_in_words_with_what_else_ran(good: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(good, tmp_path / good.name)
    busy = rewrite(copy, with_load([0, 2, 1, 0, 0]))
    found = [
        finding("STAT-002", "windows of the repeats", "5.21%; other busy processes by repeat: 0, 2, 1, 0, 0"),
        finding("STAT-006", "repeat 1, rank 0, step_end_ns", "17"),
        finding("STAT-006", "repeat 2, rank 0, step_end_ns", "9"),
        finding("DIV-010", "header", "true"),
    ]
    counts, fix = "0, 2, 1, 0, 0 of them", "stop them and run again"
    sentences = [
        "the repeats differ from each other by 5.21 % (their CV, usually at most 3 %)",
        "single steps took much longer or shorter than the others: 17, 9 in 2 repeats",
        f"other processes used more than 20 % of a core each when the repeats began ({counts}): {fix}",
    ]
    assert remarks(record_of(busy), found) == sentences


def test_spread_without_busy_processes_names_other_causes(good: Path) -> None:
    (_, load) = remarks(record_of(good), [finding("STAT-002", "windows of the repeats", "9.00%")])
    assert "no other process was busy when the repeats began" in load


def with_load(processes: list[int]) -> Any:
    def edit(events: Events) -> None:
        starts = [event for event in events if event["kind"] == "repeat_start"]
        for event, number in zip(starts, processes, strict=True):
            event["data"]["load"]["other_processes"] = number

    return edit


def test_every_rule_about_statistics_has_its_words(good: Path) -> None:
    from suite import rules

    names = [name for name in rules.load(rules.LATEST).checks if name.startswith("STAT-")]
    for name in names:
        assert len(remarks(record_of(good), [finding(name, "repeat 0", "1")])) == 2
