"""Pairs on the stand-in base image, built and published once, and runs of them as a user starts them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from suite import rules
from suite.containers.engines.attestation import EngineImage
from suite.containers.engines.container import RUN_LABEL
from suite.containers.images import build, lock, publish
from suite.containers.images.client import builder
from suite.containers.images.inside import code_digest
from tests.containers import stand_in
from tests.containers.engine import ensure_engine, in_ci
from tests.end_to_end.command import EARLY

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
RULES = "practice"
# One repeat, without the fingerprint, which another container computes: where a test is about neither.
QUICK = ("repeats=1", "fingerprint=false")


@cache
def stand_ins() -> dict[str, lock.Base]:
    """The stand-in base images by framework. If they cannot be made, fails in CI and skips elsewhere."""
    try:
        return stand_in.ensure(ensure_engine())
    except RuntimeError as problem:
        if in_ci():
            raise
        pytest.skip(str(problem))


@cache
def published(workload: str, framework: str) -> EngineImage:
    """The image of the pair. Its layers are published in rules/practice, where the checker looks them up."""
    base = stand_ins()[framework]
    with (stand_in.FOLDER / "pairs.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # tests run side by side
        found = ensure_engine().image(
            build.build(workload, framework, base, rules_version=RULES, report=print)
        )
        assert found is not None
        _remove_layers_of_other_code()
        publish.publish(RULES, workload, framework, base, found)
    return found


def _remove_layers_of_other_code() -> None:
    """Remove the layers that were published for an earlier state of the code."""
    for path in (rules.load(RULES).images_folder / "pairs").glob("*.json"):
        if json.loads(path.read_text())["code_digest"] != code_digest():
            path.unlink()


def command(
    folder: Path, *options: str, workload: str = "ncf", framework: str = "mxnet", early: bool = False
) -> list[str]:
    """The argv of a run in docker with its results in ``folder``; ``options`` may select another runtime."""
    program = ("-c", EARLY) if early else ("-m", "suite")
    named = {option.partition("=")[0] for option in options}
    defaults = ("runtime=docker", f"results_dir={folder}", f"data_root={DATA}")
    return [
        *(sys.executable, *program, "run", f"workload={workload}", f"framework={framework}"),
        *(option for option in defaults if option.partition("=")[0] not in named),
        *options,
    ]


def run(
    folder: Path,
    *options: str,
    workload: str = "ncf",
    framework: str = "mxnet",
    root: Path = ROOT,
    path: str | None = None,
    early: bool = False,
) -> subprocess.CompletedProcess[str]:
    """The finished command, started in the checkout ``root``, with ``path`` in front of PATH."""
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        command(folder, *options, workload=workload, framework=framework, early=early),
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def events(log: Path, kind: str) -> list[dict[str, Any]]:
    """The data of the events of ``kind`` in the run.jsonl of a result, each with its ``repeat``."""
    file = log if log.name == "run.jsonl" else log / "run.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [{**line["data"], "repeat": line["repeat"]} for line in lines if line["kind"] == kind]


def result(folder: Path) -> Path:
    """The one result in ``folder``."""
    (found,) = [path for path in folder.iterdir() if path.is_dir() and not path.name.endswith(".debug")]
    return found


def containers(log: Path) -> list[str]:
    """Ids of the containers of this log's run that the engine still has, running or not.

    Containers of other runs do not count: tests run side by side, and a killed harness leaves a stopped one
    until a later run sweeps it.
    """
    return _containers(log, "--all")


def _containers(log: Path, *options: str) -> list[str]:
    (header,) = events(log, "header")
    listed = subprocess.run(
        ["docker", "ps", *options, "--quiet", "--filter", f"label={RUN_LABEL}={header['run_id']}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return listed.stdout.split()


def all_stopped(log: Path, timeout: float = 15) -> bool:
    """Whether all containers of this log's run have stopped within ``timeout`` seconds."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        if not _containers(log):
            return True
        time.sleep(0.2)
    return False


def docker(*options: str) -> str:
    """The standard output of a docker client that can build."""
    done = subprocess.run(
        [builder(), *options],
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def checkout(folder: Path) -> Path:
    """A copy of this tree as a clean checkout, with the generated lock of practice."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    shutil.copytree(
        rules.load(RULES).images_folder,
        folder / "rules" / RULES / "images",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("*.tmp"),  # of a test that publishes an image at the same time
    )
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-C", str(folder)]
    for options in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "copy"]):
        subprocess.run([*git, *options], capture_output=True, check=True)
    return folder


class Running:
    """A run in progress that a test interrupts."""

    def __init__(self, folder: Path, *options: str, workload: str = "gnmt") -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            command(folder, *options, workload=workload),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, kind: str, count: int = 1, timeout: float = 180) -> Path:
        """The log's path once it holds ``count`` events of ``kind``."""
        until = time.monotonic() + timeout
        while time.monotonic() < until and self.process.poll() is None:
            for log in self.folder.glob("*.partial/run.jsonl"):
                if log.read_text().count(f'"kind":"{kind}"') >= count:
                    return log
            time.sleep(0.05)
        raise AssertionError(f"no {kind} in {timeout} s: {self.process.communicate(timeout=5)}")

    def clients(self) -> list[int]:
        """Process ids of the docker clients that the run has started."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == self.process.pid and argv[:2] == [b"docker", b"run"]:
                found.append(int(entry.name))
        return found

    def finish(self, number: signal.Signals | None = None, timeout: float = 120) -> tuple[int, str]:
        """Send a signal if one is given, wait for the end: exit code and stderr."""
        if number is not None:
            os.kill(self.process.pid, number)
        _, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, errors
