"""The cpuset of a native run: the affinity of its worker, read back from the log."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from suite.containers.engines.container import Limits
from suite.containers.engines.native import NativeInputs, native_command
from suite.harness.process import LocalProcess, WorkerFailure
from suite.log.reader import read_result
from suite.metrics.image import affinity_of, restricted
from suite.plan.custom import NO_CUSTOM_CODE
from suite.plan.errors import Unsupported
from suite.plan.header import settings_of
from suite.submissions.registry.population import figure_of
from tests.fixtures.forged import everywhere
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import reference, write_good
from tests.unit.test_plan import LAPTOP, planned, settings


def test_native_cpuset_is_an_affinity_and_no_limit_of_the_log() -> None:
    plan = planned(settings("runtime=native", "runtime.cpuset=0"), LAPTOP)
    assert (plan.affinity, plan.limits) == ("0", Limits())
    assert settings_of(plan, NO_CUSTOM_CODE)["cpuset"] is None
    assert planned(settings("runtime=native"), LAPTOP).affinity is None


@pytest.mark.parametrize("name", ["cpus=1", "memory=1g", "shm_size=1g"])
def test_other_limits_still_need_a_container(name: str) -> None:
    with pytest.raises(Unsupported, match="runtime native cannot enforce a limit"):
        planned(settings("runtime=native", "runtime.cpuset=0", f"runtime.{name}"), LAPTOP)


def test_processors_that_this_machine_lacks_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"runtime\.cpuset: expected processors among .*, found 4000"):
        planned(settings("runtime=native", "runtime.cpuset=[0,4000]"), LAPTOP)


def started(folder: Path, processors: frozenset[int] | None) -> LocalProcess:
    command = native_command(
        NativeInputs(Path(sys.executable), folder, folder, 1, "passive", None, processors)
    )
    return LocalProcess(command, folder / "debug.txt", lambda: None, lambda: None)


def test_worker_runs_on_the_processors_and_the_harness_keeps_its_own(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    one = frozenset([max(before)])
    process = started(tmp_path, one)
    try:
        assert os.sched_getaffinity(process.process.pid) == one
        assert os.sched_getaffinity(0) == before
    finally:
        process.process.kill()
        process.process.wait()


def test_processors_that_are_not_given_end_the_start(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(WorkerFailure):
        started(tmp_path, frozenset([max(before), 4000]))
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("harness", "workers", "found"),
    [
        ("0-3", ["0-3"], None),
        ("0-3", ["1"], "1"),
        ("0-3", ["0", "1"], "0-1"),
        ("0-3", ["0-1", "2-3"], None),
        ("0-7", ["0", "2,4-5"], "0,2,4-5"),
        ("0-3", [], None),
        (None, ["0"], None),
        ("0-3", [None], None),
        ("0-3", ["0-99999999999"], None),
        ("0-3", [{"a": 1}], None),
    ],
)
def test_restriction_is_what_workers_have_less_than_the_harness(
    harness: object, workers: list[object], found: str | None
) -> None:
    assert restricted(harness, workers) == found


@pytest.mark.parametrize("cpu", [[1], 7, "x", True])
def test_facts_of_another_type_are_read_as_none(cpu: object, tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path, reference()), everywhere("env", "facts.cpu", cpu, side="outside"))
    record = read_result(folder)
    assert affinity_of(record) is None
    assert figure_of(record) is not None


def test_row_of_a_restricted_run_is_labelled_affinity(tmp_path: Path) -> None:
    folder = write_good(tmp_path)

    def forge(events: Events) -> None:
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "outside":
                event["data"]["facts"]["cpu"]["affinity"] = "0-1"
            elif event["kind"] == "env":
                event["data"]["facts"]["affinity"] = "1"

    from suite.advice.cells import processors
    from suite.compare.result_row import row_of

    row = row_of(rewrite(folder, forge))
    assert (row.status, row.limits_text) == ("accepted", "affinity 1")
    assert row.limits["cpuset"] is None
    assert (row.settings["threads"], processors(row)) == (2, 1)  # make advise counts one core
