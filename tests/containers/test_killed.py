"""Whatever is killed: no container goes on, the log is complete up to there, the failure has its type."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from suite.checker import check_result
from tests.containers.pairs import Running, events, none_running, published, run

pytestmark = pytest.mark.docker


@pytest.fixture
def running(tmp_path: Path) -> Running:
    """A run whose first worker has come up."""
    published("gnmt", "pytorch")
    started = Running(tmp_path, "cache_dir=" + str(tmp_path.with_name(tmp_path.name + "-cache")))
    started.wait_for("env", 2)
    return started


def failure(place: Path) -> str:
    """The code of the run's abort; the log is whole."""
    (folder,) = place.glob("*.partial")
    (abort,) = events(folder, "abort")
    verdict = check_result(folder)
    assert {finding.rule for finding in verdict.rejections} == {"RUN-001"}, verdict.rejections
    return str(abort["code"])


def test_the_container_is_killed(running: Running) -> None:
    listed = subprocess.run(
        ["docker", "ps", "--quiet", "--filter", "label=suite.worker"],
        capture_output=True,
        text=True,
        check=True,
    )
    subprocess.run(["docker", "kill", *listed.stdout.split()], capture_output=True, check=True)
    code, errors = running.finish()
    assert (code, failure(running.folder)) == (22, "killed"), errors
    assert none_running()


def test_the_client_is_killed(running: Running) -> None:
    (client,) = running.clients()
    os.kill(client, signal.SIGKILL)
    code, errors = running.finish()
    assert (code, failure(running.folder)) == (22, "killed"), errors
    assert none_running()


def test_ctrl_c(running: Running) -> None:
    code, errors = running.finish(signal.SIGINT)
    assert (code, failure(running.folder)) == (130, "interrupted"), errors
    assert none_running()


def test_the_harness_is_killed(running: Running, tmp_path: Path) -> None:
    """Nobody is left to write an end: the log stops, the worker sees its input end, and so ends."""
    code, _ = running.finish(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert none_running()
    (folder,) = running.folder.glob("*.partial")
    verdict = check_result(folder)
    assert not verdict.accepted
    assert "repeat 0" in verdict.reached


def test_an_engine_that_cannot_start_the_worker_is_said(tmp_path: Path) -> None:
    """Shared memory that no kernel gives: docker refuses the container, and its words are passed on."""
    published("ncf", "pytorch")
    done = run(tmp_path, "runtime.cpuset=[4000]")
    assert done.returncode == 13, done.stdout + done.stderr
    assert "the engine did not start the worker" in done.stderr
    assert none_running()
