"""Honest logs of machines with faults: the checker accepts all, and flags only what an auditor must know."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from mmap import mmap
from pathlib import Path

import psutil
import pytest

from suite.checker import Verdict, check_result
from suite.rules import LATEST, load
from tests.fixtures.forging import lines_of, rewrite
from tests.fixtures.good_log import REFERENCE, reference, write_good
from tests.fixtures.honest import NAMES, write_honest
from tests.fixtures.odd_logs import (
    EDITED,
    SEVERAL_GPUS,
    made,
    receipts_later,
    write_edited,
    write_made,
    write_several_gpus,
)
from tests.fixtures.odd_runs import RUNS, Machine, OddRun, make

SUBMISSIONS = Path(__file__).parents[2] / "submissions/suite-reference/results"


def flags(verdict: Verdict) -> set[str]:
    """The rules that flag."""
    return {finding.rule for finding in verdict.flags}


def expected(name: str) -> set[str]:
    """The flags of a log, by the fault in its name."""
    found = {
        "TIME-008": name.startswith(("clock-", "NTP")) and name != "clock-slewed-by-500ppm",
        "DEV-008": name.startswith(("the driver", "the device is lost")),
        "DEV-005": name.startswith("a slice of a GPU"),
        "TELE-015": name in ("the sampler hangs in the tail", "the sampler hangs everywhere"),
    }
    return {rule for rule, holds in found.items() if holds}


@pytest.mark.parametrize("name", made())
def test_run_on_a_machine_with_a_fault_is_accepted(name: str, tmp_path: Path) -> None:
    verdict = check_result(write_made(name, tmp_path))
    assert verdict.rejections == ()
    assert verdict.scored
    assert flags(verdict) == expected(name)


@pytest.mark.parametrize("name", EDITED)
def test_gpu_log_with_traces_of_a_fault_is_accepted(name: str, tmp_path: Path) -> None:
    verdict = check_result(write_edited(name, tmp_path))
    assert verdict.rejections == ()
    assert verdict.scored
    assert flags(verdict) == expected(name)


@pytest.mark.parametrize("name", SEVERAL_GPUS)
def test_log_of_several_gpus_is_accepted(name: str, tmp_path: Path) -> None:
    """On one to four GPUs; in one repeat the host paused a rank for 7 ms after its last timestamp."""
    verdict = check_result(write_several_gpus(name, tmp_path))
    assert verdict.rejections == ()
    assert flags(verdict) == set()


def test_corpus_has_a_log_of_every_fault() -> None:
    assert made() == sorted(RUNS)
    assert len(RUNS) + len(EDITED) >= 25


# One thread of the host limits TensorFlow in these runs, so that their repeats differ (docs/performance.md).
NOISY = (
    "20261130T1345Z-gnmt-tensorflow-train-bf16-reference-62356530",
    "20261130T1347Z-lstm_ptb-tensorflow-infer-bf16-reference-cb633261",
    "20261130T1348Z-ncf-tensorflow-infer-bf16-reference-fb5cfc6c",
    "20261130T1353Z-word2vec-tensorflow-train-bf16-reference-66aeadcf",
)


def test_at_most_one_ordinary_run_in_twenty_is_flagged(tmp_path: Path) -> None:
    folders = [write_honest(name, tmp_path) for name in NAMES]
    folders += [path.parent for path in SUBMISSIONS.glob("**/run.jsonl")]
    flagged = {folder.name for folder in folders if check_result(folder).flags}
    assert flagged > set(NOISY)
    assert 20 * len(flagged - set(NOISY)) <= len(folders) - len(NOISY), flagged


@pytest.mark.parametrize(("data", "flagged"), [("real", False), ("synthetic", True)])
def test_processes_of_a_loader_may_delay_every_receipt(data: str, flagged: bool, tmp_path: Path) -> None:
    """An honest run of resnet50 on an H200, on real data, had receipts 40 to 70 ms late in every repeat."""
    folder = write_good(tmp_path, reference(key=replace(REFERENCE, data=data)))
    rewrite(folder, lambda events: receipts_later(events, (70, 44, 62, 58, 66)))
    found = check_result(folder)
    assert found.rejections == () or {one.rule for one in found.rejections} <= {"DATA-002"}
    assert ("TIME-019" in flags(found)) == flagged


def test_missing_release_is_information_only_while_there_is_none() -> None:
    rules = load(LATEST)
    assert (rules.checks["ID-016"].severity == "info") == (not rules.releases)


def test_steps_between_clock_events_do_not_hide_a_later_date(tmp_path: Path) -> None:
    """A line whose date is neither that before a step of the clock nor that after it is rejected."""
    folder = write_made("clock-forward-3s-between-repeats", tmp_path)
    number = next(
        i for i, event in enumerate(lines_of(folder)) if event["kind"] == "step" and event["repeat"] == 1
    )

    def forge(events: list[dict[str, object]]) -> None:
        wall = str(events[number]["wall"])
        events[number]["wall"] = f"{wall[:11]}23{wall[13:]}"

    assert "TIME-016" in {one.rule for one in check_result(rewrite(folder, forge)).rejections}


# In place of the harness: a program that writes the first line of a log.
HARNESS = """
for option; do :; done
mkdir -p "${option#results_dir=}/20261120T1817Z.partial"
echo '{"kind":"header","data":{}}' > "${option#results_dir=}/20261120T1817Z.partial/run.jsonl"
"""


def ended_before(machine: Machine) -> None:
    """Fail like an act whose process has ended."""
    raise psutil.NoSuchProcess(machine.harness.pid)


def test_harness_ends_if_the_fault_cannot_be_made(tmp_path: Path) -> None:
    program = f"{HARNESS}\necho $$ > {tmp_path}/pid\nexec sleep 600"
    run = OddRun(ended_before, {"kind": "header"}, command=("sh", "-c", program))
    with pytest.raises(psutil.NoSuchProcess):
        make("none", run, tmp_path)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_log_of_a_run_that_failed_is_not_stored(tmp_path: Path) -> None:
    run = OddRun(lambda m: None, {"kind": "header"}, command=("sh", "-c", f"{HARNESS}\nsleep 1; exit 20"))
    with pytest.raises(SystemExit, match="expected a run that ends with status 0, found 20"):
        make("none", run, tmp_path)


def test_paused_processes_run_again_if_one_has_ended() -> None:
    with subprocess.Popen(["sleep", "600"]) as lives, subprocess.Popen(["true"]) as ended:
        found = [psutil.Process(one.pid) for one in (lives, ended)]
        ended.wait()
        machine = Machine(psutil.Process(), mmap(-1, 24), ExitStack())
        machine.processes = lambda module: found  # type: ignore[method-assign]
        with pytest.raises(psutil.NoSuchProcess):
            machine.pause(0.0, "any")
        time.sleep(0.2)  # a signal takes a moment
        status = found[0].status()
        lives.kill()
    assert status != psutil.STATUS_STOPPED
