"""A real docker: attestation of containers, report of their end, and clean-up.

The image has the machine's shell and a few programs. It needs no network, no image registry and one second.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suite.containers.engines.attestation import Attestation, EngineProblem
from suite.containers.engines.container import SCRATCH, ContainerInputs, Limits, Mount
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.engines.observe import confinement
from suite.log.nulls import unexplained
from suite.telemetry.reading import Collector
from tests.containers.engine import ensure_engine

pytestmark = pytest.mark.docker

USER = (65534, 65534)
PROGRAMS = ("sh", "cat", "dd", "sleep", "ls")
SCRIPTS = {  # each runs in place of the worker's interpreter, and ignores its arguments
    "echo": "exec cat",
    "exit": "exit 7",
    "allocate": "exec dd if=/dev/zero of=/dev/null bs=512M count=1",
    "sleep_forever": "exec sleep 600",  # does not end at the end of its standard input
    "write": (
        "for folder in / /etc /data /scratch /tmp; do "
        "if (: >$folder/probe) 2>/dev/null; then echo $folder yes; else echo $folder no; fi; done; "
        "ls /sys/class/net"
    ),
}


@pytest.fixture(scope="module")
def engine() -> DockerEngine:
    return ensure_engine()


@pytest.fixture(scope="module")
def image(engine: DockerEngine) -> Iterator[str]:
    """The id of an image of a shell, with labels of the suite and another label."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path in _files():
            tar.add(Path(path).resolve(), arcname=path.lstrip("/"))
        for name, script in SCRIPTS.items():
            data = f"#!/bin/sh\n{script}\n".encode()
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
        for folder in ("tmp", "data", "scratch", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
    tag = f"suite-test-{secrets.token_hex(4)}:local"
    labels = ["LABEL suite.workload=ncf suite.framework=pytorch", "LABEL org.example=1"]
    changes = [argument for label in labels for argument in ("--change", label)]
    argv = ["docker", "import", *changes, "-", tag]
    subprocess.run(argv, input=content.getvalue(), check=True, capture_output=True, timeout=60)
    found = engine.image(tag)
    assert found is not None
    yield found.id
    subprocess.run(["docker", "rmi", "--force", tag], check=True, capture_output=True, timeout=60)


def _files() -> list[str]:
    """The paths of the programs and of the libraries that they load."""
    found: set[str] = set()
    for program in PROGRAMS:
        text = subprocess.run(["ldd", f"/bin/{program}"], check=True, capture_output=True, text=True).stdout
        found |= {path for path in text.split() if path.startswith("/")} | {f"/bin/{program}"}
    return sorted(found)


class StartedContainer:
    """A container and its client, started as the harness starts it."""

    def __init__(self, engine: DockerEngine, inputs: ContainerInputs) -> None:
        command = engine.command(inputs)
        self.name = inputs.name
        self.client = subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.directory,
            env=dict(command.environment),
            start_new_session=True,
        )


@pytest.fixture
def start(engine: DockerEngine, image: str, tmp_path: Path) -> Iterator[Any]:
    started: list[StartedContainer] = []

    def start_container(program: str, limits: Limits | None = None, **changes: Any) -> StartedContainer:
        scratch = tmp_path / "scratch, with a comma"
        scratch.mkdir(exist_ok=True)
        scratch.chmod(0o777)
        options: dict[str, Any] = {
            "image": image,
            "name": f"suite-test-{secrets.token_hex(4)}",
            "environment": {"HOME": SCRATCH},
            "mounts": (Mount(scratch, SCRATCH, writable=True), Mount(tmp_path, "/data")),
            "user": USER,
            "limits": limits or Limits(),
            "python": f"/bin/{program}",
            "directory": tmp_path,
            "labels": {"suite.worker": tmp_path.name},
        }
        inputs = ContainerInputs(**{**options, **changes})
        started.append(StartedContainer(engine, inputs))
        return started[-1]

    yield start_container
    for each in started:
        engine.remove(each.name)
        each.client.kill()
        with contextlib.suppress(ValueError):  # the test has read its output
            _, errors = each.client.communicate(timeout=20)
            print(errors.decode(errors="replace"))
    left = engine._api.containers(all=True, filters={"label": f"suite.worker={tmp_path.name}"})
    assert left == []


def container_state(name: str) -> dict[str, Any]:
    text = subprocess.run(["docker", "inspect", name], check=True, capture_output=True, timeout=20).stdout
    return dict(json.loads(text)[0]["State"])


def wait_for_end(engine: DockerEngine, name: str, seconds: float = 20.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (ended := engine.ended(name)) is not None:
            return ended
        time.sleep(0.05)
    return None


def assert_explained(attested: Attestation) -> None:
    data = {"facts": {"container": attested.facts}, "reasons": attested.reasons}
    assert unexplained(data) == (set(), set())


def test_attestation_reports_image_confinement_and_limits(
    engine: DockerEngine, image: str, start: Any
) -> None:
    limits = Limits.parse(cpus=0.5, cpuset=[0], memory="64m", shm_size="32m")
    worker = start("echo", limits)
    attested = engine.attest(worker.name, worker.client.pid)
    argv = ["docker", "image", "inspect", image]
    inspect = json.loads(subprocess.run(argv, check=True, capture_output=True, timeout=20).stdout)[0]
    assert attested.facts == {
        "engine": "docker",
        "version": engine.version,
        "worth": "engine",
        "image": {
            "config_digest": None if engine.containerd_store else image,
            "diff_ids": inspect["RootFS"]["Layers"],
            "repo_digests": [],
            "platform": f"linux/{inspect['Architecture']}",
            "labels": {"framework": "pytorch", "workload": "ncf"},
            "file_digest": None,
            "imported_from": None,
        },
        "confinement": {
            "privileged": False,
            "network": "none",
            "read_only": True,
            "tty": False,
            "root": False,
            "capabilities_added": [],
            "writable": ["/scratch", "/tmp"],
            "ipc": "private",
        },
        "limits": {"cpus": "0.5", "cpuset": "0", "memory_bytes": 64 << 20, "shm_bytes": 32 << 20},
    }
    assert len(inspect["RootFS"]["Layers"]) == 1
    assert_explained(attested)


def test_attested_pid_is_that_of_the_worker_not_of_init(engine: DockerEngine, start: Any) -> None:
    worker = start("sleep_forever")
    pid = engine.attest(worker.name, worker.client.pid).pid
    assert pid is not None
    assert pid != container_state(worker.name)["Pid"]
    until = time.monotonic() + 10
    command = b""
    while b"600" not in command and time.monotonic() < until:  # the shell is replaced by it a moment later
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert command.split(b"\0")[:2] == [b"sleep", b"600"]
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{USER[0]}\t" in status
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


def test_confinement_read_from_kernel_equals_the_engines_report(engine: DockerEngine, start: Any) -> None:
    """Runtimes without an engine use the kernel's report."""
    attested = engine.attest(start("echo").name)
    assert attested.facts is not None
    collector = Collector()
    assert confinement(collector, attested.pid) == attested.facts["confinement"]
    assert collector.reasons == {}
    test_process = confinement(collector, os.getpid())
    assert test_process["network"] == "host"
    assert test_process["ipc"] == "host"
    assert test_process["read_only"] is False
    assert "/" in test_process["writable"]


def test_missing_limits_are_null_with_reasons(engine: DockerEngine, start: Any) -> None:
    attested = engine.attest(start("echo").name)
    assert attested.facts is not None
    limits = attested.facts["limits"]
    assert [limits[name] for name in ("cpus", "cpuset", "memory_bytes")] == [None] * 3
    assert isinstance(limits["shm_bytes"], int)
    assert attested.reasons["container.limits.memory_bytes"] == "no limit is set"
    assert_explained(attested)


def test_two_containers_of_one_image_have_the_same_facts(engine: DockerEngine, start: Any) -> None:
    limits = Limits.parse(cpus=1, memory="64m")
    first, second = (engine.attest(start("echo", limits).name) for _ in range(2))
    assert first.facts == second.facts
    assert first.reasons == second.reasons
    assert first.pid != second.pid


UNCONFINED_OPTIONS = ["--privileged", "--user", "1000:1000", "--network", "host", "--ipc", "host", "--tty"]
DEFAULTS = {  # the confinement of `docker run` without options
    "privileged": False,
    "network": "default",
    "read_only": False,
    "tty": False,
    "root": True,
    "capabilities_added": [],
    "writable": ["/results"],
    "ipc": "private",
}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], DEFAULTS),
        (
            UNCONFINED_OPTIONS,
            DEFAULTS | {"privileged": True, "network": "host", "ipc": "host", "tty": True, "root": False},
        ),
        (
            ["--user", "1:1", "--cap-add", "SYS_ADMIN"],
            DEFAULTS | {"root": False, "capabilities_added": ["SYS_ADMIN"]},
        ),
    ],
    ids=["defaults", "privileged", "capability"],
)
def test_attestation_reports_missing_confinement(
    options: list[str], wanted: dict[str, Any], engine: DockerEngine, image: str, tmp_path: Path
) -> None:
    name = f"suite-test-{secrets.token_hex(4)}"
    argv = ["docker", "run", "--detach", "--name", name, *options, "--volume", f"{tmp_path}:/results"]
    done = subprocess.run([*argv, image, "/bin/sleep_forever"], capture_output=True, timeout=30, check=False)
    try:
        assert done.returncode == 0, done.stderr
        attested = engine.attest(name)
    finally:
        engine.remove(name)
    assert attested.facts is not None
    found = attested.facts["confinement"]
    found["capabilities_added"] = [name.removeprefix("CAP_") for name in found["capabilities_added"]]
    found["network"] = found["network"].replace(
        "bridge", "default"
    )  # newer engines report the default as bridge
    assert found == wanted
    assert (attested.facts["limits"]["shm_bytes"] is None) == (wanted["ipc"] == "host")
    assert_explained(attested)


def test_container_can_write_only_scratch_and_tmp_and_has_no_network(
    engine: DockerEngine, start: Any
) -> None:
    worker = start("write")
    out, _ = worker.client.communicate(timeout=30)
    assert out.decode().split("\n") == [
        *("/ no", "/etc no", "/data no", "/scratch yes", "/tmp yes"),
        *("lo", ""),
    ]


def test_container_passes_stdin_to_stdout_and_ends_with_stdin(engine: DockerEngine, start: Any) -> None:
    worker = start("echo")
    line = b'{"token":"8f"}\n' * 1000
    out, _ = worker.client.communicate(line, timeout=30)
    assert out == line
    ended = wait_for_end(engine, worker.name)
    assert (ended.exit_code, ended.oom_killed) == (0, False)


def test_engine_reports_the_exit_code(engine: DockerEngine, start: Any) -> None:
    worker = start("exit")
    assert worker.client.wait(timeout=30) == 7
    ended = wait_for_end(engine, worker.name)
    assert (ended.exit_code, ended.oom_killed) == (7, False)


def test_engine_reports_out_of_memory(engine: DockerEngine, start: Any) -> None:
    worker = start("allocate", Limits.parse(memory="64m"))
    worker.client.wait(timeout=60)
    ended = wait_for_end(engine, worker.name)
    assert (ended.exit_code, ended.oom_killed) == (128 + signal.SIGKILL, True)


def test_container_ends_when_its_client_is_killed(engine: DockerEngine, start: Any) -> None:
    worker = start("echo")
    engine.attest(worker.name, worker.client.pid)
    worker.client.kill()
    assert wait_for_end(engine, worker.name) is not None


def test_engine_reports_killed_container_without_out_of_memory(engine: DockerEngine, start: Any) -> None:
    worker = start("sleep_forever")
    pid = engine.attest(worker.name, worker.client.pid).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert worker.client.wait(timeout=30) == 128 + signal.SIGKILL
    ended = wait_for_end(engine, worker.name)
    assert (ended.exit_code, ended.oom_killed) == (128 + signal.SIGKILL, False)


def test_remove_ends_running_container_and_may_be_repeated(engine: DockerEngine, start: Any) -> None:
    worker = start("sleep_forever")
    engine.attest(worker.name, worker.client.pid)
    engine.remove(worker.name)
    worker.client.wait(timeout=30)
    engine.remove(worker.name)
    assert engine.ended(worker.name) is None


def test_sweep_removes_ended_containers_and_keeps_running_ones(
    engine: DockerEngine, start: Any, tmp_path: Path
) -> None:
    exited, running = start("exit"), start("echo")
    exited.client.wait(timeout=30)
    label = f"suite.worker={tmp_path.name}"
    engine.attest(running.name)
    assert wait_for_end(engine, exited.name) is not None
    assert engine.sweep(label=label) == 0  # its harness may not have read the exit code yet
    assert engine.sweep(older_than_s=-5, label=label) == 1
    assert engine._ask(engine._api.inspect_container, exited.name) is None
    assert container_state(running.name)["Running"] is True


def test_attest_reports_container_that_cannot_start_at_once(engine: DockerEngine, start: Any) -> None:
    started_at = time.monotonic()
    worker = start("echo", image="sha256:" + "00" * 32)
    with pytest.raises(EngineProblem, match="client ended without a running container"):
        engine.attest(worker.name, worker.client.pid)
    assert time.monotonic() - started_at < 20


def test_engine_finds_image_by_id_and_reports_absent_ones_as_none(engine: DockerEngine, image: str) -> None:
    found = engine.image(image)
    assert found is not None
    assert found.id == image
    assert found.labels == {"suite.workload": "ncf", "suite.framework": "pytorch", "org.example": "1"}
    assert found.size > 0
    assert engine.image("suite-test-absent:none") is None
    assert engine.image("localhost:5000/absent@sha256:" + "00" * 32) is None


@pytest.mark.parametrize("client", ["/usr/bin/docker", "/usr/local/bin/docker"])
def test_container_starts_with_either_docker_client(
    client: str, engine: DockerEngine, start: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not Path(client).exists():
        pytest.skip(f"no client at {client}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").symlink_to(client)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert shutil.which("docker") == f"{tmp_path}/bin/docker"
    worker = start("echo", Limits.parse(cpus=1, memory="64m", shm_size="16m"))
    assert engine.attest(worker.name, worker.client.pid).pid is not None
