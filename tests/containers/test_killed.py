"""After a kill, no container runs, the log is complete up to the kill, and the abort has its code."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from suite.checker import check_result
from tests.containers.pairs import Running, all_stopped, containers, events, published, result, run

pytestmark = pytest.mark.docker


@pytest.fixture
def running(tmp_path: Path) -> Running:
    """A run whose first worker has started."""
    published("gnmt", "mxnet")
    started = Running(tmp_path, "cache_dir=" + str(tmp_path.with_name(tmp_path.name + "-cache")))
    started.wait_for("env", 2)
    return started


def abort_code(results: Path) -> str:
    """The code of the run's abort event; the log must be complete."""
    (folder,) = results.glob("*.partial")
    (abort,) = events(folder, "abort")
    verdict = check_result(folder)
    assert {finding.rule for finding in verdict.rejections} == {"RUN-001"}, verdict.rejections
    return str(abort["code"])


def test_run_with_killed_container_aborts_as_killed(running: Running) -> None:
    started = containers(result(running.folder))
    subprocess.run(["docker", "kill", *started], capture_output=True, check=True)
    code, errors = running.finish()
    assert (code, abort_code(running.folder)) == (22, "killed"), errors
    assert all_stopped(result(running.folder))


def test_run_with_killed_client_aborts_as_killed(running: Running) -> None:
    (client,) = running.clients()
    os.kill(client, signal.SIGKILL)
    code, errors = running.finish()
    assert (code, abort_code(running.folder)) == (22, "killed"), errors
    assert all_stopped(result(running.folder))


def test_interrupted_run_aborts_as_interrupted(running: Running) -> None:
    code, errors = running.finish(signal.SIGINT)
    assert (code, abort_code(running.folder)) == (130, "interrupted"), errors
    assert all_stopped(result(running.folder))


def test_killed_harness_leaves_log_without_end_and_no_container(running: Running) -> None:
    """No process writes the end of the log. The worker ends at the end of its standard input."""
    code, _ = running.finish(signal.SIGKILL)
    assert code == -signal.SIGKILL
    folder = result(running.folder)
    assert all_stopped(folder)
    verdict = check_result(folder)
    assert not verdict.accepted
    assert "repeat 0" in verdict.reached


def test_run_reports_that_the_engine_did_not_start_the_worker(tmp_path: Path) -> None:
    """Docker refuses a container with a core that does not exist, and the run prints its message."""
    published("ncf", "mxnet")
    done = run(tmp_path, "runtime.cpuset=[4000]")
    assert done.returncode == 13, done.stdout + done.stderr
    assert "the engine did not start the worker" in done.stderr
    assert all_stopped(result(tmp_path))
