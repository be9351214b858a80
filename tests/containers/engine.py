"""A docker engine for the tests: the one that answers, or in CI, as root, one of our own.

Where there is none, the tests fail in CI (``CI=true``) and skip with the reason elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path

import pytest

from suite.runtime.attestation import EngineProblem
from suite.runtime.docker_engine import DockerEngine

STATE = Path("/var/tmp/suite-test-engine")
PACKAGES = ("docker.io", "iptables", "debootstrap", "docker-registry")
START_S = 60.0


@cache
def ensure_engine() -> DockerEngine:
    """The engine; ends the test, by failure in CI and by skipping elsewhere, where there is none."""
    problem = why_not()
    if problem and in_ci() and os.geteuid() == 0:
        problem = _own_engine() or why_not()
    if problem:
        message = f"no docker engine for the tests of containers: {problem}"
        if in_ci():
            pytest.fail(message)
        pytest.skip(message)
    return DockerEngine()


def in_ci() -> bool:
    """Whether this is CI, where what cannot be tested is a failure."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def why_not() -> str | None:
    """Why no engine can be used; None where one answers."""
    try:
        DockerEngine()
    except EngineProblem as problem:
        return str(problem)
    return None


def install() -> str | None:
    """Install what the tests need from Debian, where it is missing; why that failed, or None."""
    missing = [name for name in ("dockerd", "debootstrap", "docker-registry") if _which(name) is None]
    if not missing:
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{' '.join(command[:2])}: {done.stderr.strip()[-400:]}"
    return None


def _own_engine() -> str | None:
    """Start dockerd by hand; why that failed, or None. Its pid is remembered for :func:`stop`."""
    problem = install()
    if problem:
        return problem
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(
            [_which("dockerd") or "dockerd"], stdout=log, stderr=log, start_new_session=True
        )
    (STATE / "dockerd.pid").write_text(f"{daemon.pid}\n")
    end = time.monotonic() + START_S
    while time.monotonic() < end and daemon.poll() is None:
        if why_not() is None:
            return None
        time.sleep(0.5)
    tail = (STATE / "dockerd.log").read_text(errors="replace").strip().splitlines()[-5:]
    return "dockerd was started and does not answer: " + " / ".join(tail)


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin")
