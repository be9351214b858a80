"""A docker engine for the tests: the one that answers, or in CI, as root, one that the tests start.

Without an engine, the tests fail in CI (``CI=true``) and skip with the reason elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from suite.containers.engines.attestation import EngineProblem
from suite.containers.engines.docker_engine import DockerEngine
from tests.containers import daemon

STATE = Path("/var/tmp/suite-test-engine")
# Of the engine that the tests start, and removed with it: a run of all tests builds 13 GB of images.
# It is below docker's usual folder, whose file system suits docker even where that of / does not.
DATA = Path("/var/lib/docker/suite-tests")
PACKAGES = ("docker.io", "iptables", "debootstrap", "docker-registry")
PROGRAMS = ("docker", "dockerd", "iptables", "debootstrap", "docker-registry")
START_S = 60.0


@cache
def ensure_engine() -> DockerEngine:
    """The engine. Without one, the test fails in CI and is skipped elsewhere."""
    problem = engine_problem()
    if problem and in_ci() and os.geteuid() == 0:
        problem = _start_dockerd() or engine_problem()
    if problem:
        message = f"no docker engine for the tests of containers: {problem}"
        if in_ci():
            pytest.fail(message)
        pytest.skip(message)
    return DockerEngine()


def in_ci() -> bool:
    """Whether this is CI, where a test that cannot run is a failure."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def engine_problem() -> str | None:
    """Why no engine can be used; None where one answers."""
    try:
        DockerEngine()
    except EngineProblem as problem:
        return str(problem)
    return None


def install() -> str | None:
    """Install the missing Debian packages of the tests. Returns None, or the reason of the failure."""
    missing = [name for name in PROGRAMS if _which(name) is None]
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


def stop() -> bool:
    """End the engine that :func:`ensure_engine` started and remove its images; False if it started none.

    A process in the background removes the folder, which takes half a minute. The folder gets another name
    first, so that an engine started meanwhile does not use it.
    """
    stopped = daemon.stop("dockerd", STATE)
    if stopped:
        removed = DATA.with_name(f"{DATA.name}-removed-{os.getpid()}")
        with contextlib.suppress(OSError):
            DATA.rename(removed)
            subprocess.Popen(["rm", "-rf", removed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return stopped


def _start_dockerd() -> str | None:
    """Start dockerd. Returns None, or the reason of the failure."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # tests run side by side
        if problem := install():
            return problem
        if engine_problem() is None:  # another test process started it
            return None
        shutil.rmtree(DATA, ignore_errors=True)  # of a run that was killed
        command = [_which("dockerd") or "dockerd", "--data-root", str(DATA)]
        return daemon.start("dockerd", command, STATE, lambda: engine_problem() is None, START_S)


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin")
