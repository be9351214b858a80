"""The engine of the container tests: without one they fail in CI and skip with the reason elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.containers import daemon, engine

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address where no engine answers, and a user who cannot start one."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    engine.ensure_engine.cache_clear()


def test_missing_engine_skips_with_the_reason(no_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no docker engine for the tests of containers: \w+"):
        engine.ensure_engine()


def test_missing_engine_fails_in_ci(no_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no docker engine for the tests of containers"):
        engine.ensure_engine()


def test_daemon_is_started_and_ended_by_its_pid(tmp_path: Path) -> None:
    assert daemon.start("sleeper", SLEEPER, tmp_path, lambda: True, 10) is None
    assert daemon.stop("sleeper", tmp_path)
    assert not daemon.stop("sleeper", tmp_path)


def test_other_process_with_the_same_pid_is_not_ended(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEPER) as other:
        (tmp_path / "sleeper.pid").write_text(f"{other.pid} 12345.0\n")
        assert not daemon.stop("sleeper", tmp_path)
        assert other.poll() is None
        other.terminate()


def test_daemon_that_ends_at_once_reports_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such storage driver')"]
    assert "no such storage driver" in (daemon.start("broken", command, tmp_path, lambda: False, 10) or "")
    assert not list(tmp_path.glob("*.pid"))


def test_daemon_that_ended_by_itself_leaves_its_last_lines(tmp_path: Path) -> None:
    assert daemon.ended_by_itself("brief", tmp_path) == ""
    command = [sys.executable, "-c", "print('no space on the disk', flush=True); input()"]
    with (tmp_path / "brief.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
        created = psutil.Process(process.pid).create_time()
        (tmp_path / "brief.pid").write_text(f"{process.pid} {created}\n")
        assert daemon.ended_by_itself("brief", tmp_path) == ""
        process.communicate("\n")
    assert daemon.ended_by_itself("brief", tmp_path) == "no space on the disk"
