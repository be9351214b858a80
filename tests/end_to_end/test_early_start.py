"""Workers that are started beside the set-up of the worker before, as on a GPU."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from suite.containers.engines.native import WorkerCommand
from suite.contract import BENCHMARK, LOAD
from suite.harness.run import _may_start_early
from suite.harness.session import Session
from suite.harness.worker_process import WorkerFailure
from suite.log.reader import read_result
from tests.end_to_end.command import ROOT, Running, all_ended, run


@pytest.mark.parametrize(
    ("framework", "options"),
    [("pytorch", ()), ("jax", ("repeats=2",)), ("mxnet", ("devices=2", "repeats=2"))],
    ids=["pytorch", "jax", "mxnet on two ranks"],
)
def test_run_is_accepted_and_later_repeats_wait_for_no_import(
    framework: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(tmp_path, *options, framework=framework, early=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = read_result(ROOT / done.stdout.strip().splitlines()[-1].removeprefix("result: "))
    first, *later = (repeat.reports[0].data["import_ns"] for repeat in record.repeats)
    assert max(later) < first / 2
    assert record.all("fingerprint")


@pytest.mark.parametrize(
    ("changes", "early"),
    [
        ({}, True),
        ({"runtime": "docker"}, True),
        ({"runtime": "enroot"}, False),  # Slurm may have no room for a second step
        ({"device_ids": ()}, False),
        ({"kind": LOAD}, False),
        ({"settings": SimpleNamespace(mode="quality")}, False),
    ],
    ids=str,
)
def test_workers_start_early_where_a_gpu_is_measured(changes: dict[str, Any], early: bool) -> None:
    throughput = SimpleNamespace(mode="throughput")
    plan = {"runtime": "native", "kind": BENCHMARK, "settings": throughput, "device_ids": ("GPU-0",)}
    assert _may_start_early(cast("Any", SimpleNamespace(**plan | changes))) is early


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_early_worker_ends_with_the_run(number: signal.Signals, tmp_path: Path) -> None:
    running = Running(tmp_path, "data=synthetic", early=True)
    running.wait_for("env", 4)
    workers = running.workers()
    running.finish(number)
    assert all_ended(workers)


WORKER = "import json, sys; json.loads(sys.stdin.readline())['early']; "


def session(folder: Path, *programs: str) -> Session:
    """A session whose workers execute ``programs``, one after the other, whatever their numbers are."""
    left = list(programs)

    def command(number: int, scratch: Path) -> WorkerCommand:
        del number, scratch
        return WorkerCommand((sys.executable, "-c", left.pop(0)), dict(os.environ), folder)

    workers = SimpleNamespace(ended=lambda number: None, remove=lambda number: None)
    prepared = SimpleNamespace(
        plan=SimpleNamespace(scratch_root=folder, compiled=None),
        resources=SimpleNamespace(workers=workers),
        command=command,
    )
    held = SimpleNamespace(held=nullcontext)
    return Session(*cast("Any", (prepared, None, {}, None, folder / "debug", None, held)))


@pytest.mark.parametrize("early", ["raise SystemExit(3)", WORKER + "print('no event', flush=True)"])
def test_failed_early_worker_is_replaced_in_its_own_repeat(early: str, tmp_path: Path) -> None:
    mine = session(tmp_path, early, "raise SystemExit(7)")
    mine.start_early(1, {})
    mine.await_early()  # in the repeat before, whose failure it is not
    with ExitStack() as stack:
        worker = mine.start_worker(1, stack)
        with pytest.raises(WorkerFailure) as caught:
            worker.expect("hello", 10)
    assert caught.value.exit_code == 7
    mine.clean()
