"""The choice of an engine with reasons, facts from inspections of several versions, images as files."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import psutil
import pytest

from suite.containers.engines import choice as engines
from suite.containers.engines import pyxis
from suite.containers.engines.attestation import (
    EngineProblem,
    container_facts,
    digests_only,
    engine_image,
    parse_time,
    suite_labels,
)
from suite.containers.engines.container import SCRATCH, ContainerInputs, Limits, Mount
from suite.containers.engines.docker_engine import DockerEngine, _numbers, _why_not
from suite.containers.engines.file_engine import FileEngine, is_worker
from suite.containers.engines.file_image import file_digest, import_argv, import_image, recorded_import
from suite.containers.engines.gpu import docker_gpus, podman_gpus
from suite.log.nulls import unexplained

DIGEST = "sha256:" + "3b" * 32
REFERENCE = f"nvcr.io/nvidia/pytorch:26.08-py3@{DIGEST}"
SPECIFICATION = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n"


# --- which engine answers


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a program on an otherwise empty search path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def put(name: str, script: str = "exit 1") -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


def test_every_skipped_engine_has_a_reason(program: Any) -> None:
    found = engines.find("auto", need_gpu=False)
    assert found.engine is None
    assert [line.partition(":")[0] for line in found.tried] == list(engines.ORDER)
    assert all("is not on PATH: install" in line for line in found.tried)
    assert len(engines.find("podman", need_gpu=False).tried) == 1
    with pytest.raises(ValueError, match="expected auto or one of docker"):
        engines.find("lxc", need_gpu=False)


def test_auto_takes_the_next_engine_that_answers(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program("docker")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    program("podman", "echo 'cannot set up namespace' >&2; exit 125")
    program("apptainer", "echo apptainer version 1.3.4")
    found = engines.find("auto", need_gpu=False)
    assert found.engine is not None
    assert (found.engine.name, found.engine.version) == ("apptainer", "1.3.4")
    docker, podman = found.tried
    assert "no daemon answers at unix:///nowhere/docker.sock: start it" in docker
    assert "`podman info` failed (cannot set up namespace)" in podman
    assert engines.find("auto", need_gpu=True).engine is None


def test_engine_on_another_machine_is_refused(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program("docker")
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(EngineProblem, match=r"tcp://192\.0\.2\.1:2375 is not on this machine"):
        DockerEngine()


def test_silent_or_refusing_daemon_is_reported(
    program: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program("docker")
    path = tmp_path / "d.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(EngineProblem, match="no daemon answers"):  # bound, but no process listens
            DockerEngine(timeout_s=0.3)
        listener.listen()
        with pytest.raises(EngineProblem, match="does not answer in time"):
            DockerEngine(timeout_s=0.3)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another user")
def test_missing_permission_has_the_group_as_fix(tmp_path: Path) -> None:
    """A socket of root, seen by a process of another user."""
    path = Path(f"/tmp/suite-test-{os.getpid()}.sock")
    script = (
        "import http.client, os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        "except PermissionError as error: print(error.errno)\n"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen()
            argv = [sys.executable, "-I", "-c", script, str(path)]
            errno_text = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        finally:
            path.unlink(missing_ok=True)
    cause = OSError(int(errno_text), "Permission denied")
    assert isinstance(cause, PermissionError)
    hidden = RuntimeError("Error while fetching server API version", ConnectionError("aborted", cause))
    text = _why_not(hidden, "unix:///var/run/docker.sock")
    assert "may not talk to unix:///var/run/docker.sock: sudo usermod -aG docker $USER" in text


@pytest.mark.parametrize(
    ("version", "wanted"), [("20.10.24+dfsg1", (20, 10)), ("28.2.2", (28, 2)), ("29.0.0-rc.1", (29, 0))]
)
def test_engine_versions_are_parsed(version: str, wanted: tuple[int, ...]) -> None:
    assert _numbers(version) == wanted


def test_engine_times_are_parsed() -> None:
    assert parse_time("2026-11-21T15:13:15.288898365Z").isoformat() == "2026-11-21T15:13:15+00:00"
    assert parse_time("") == parse_time("never")
    assert parse_time("0001-01-01T00:00:00Z").year == 1


# --- how GPUs are handed out


def test_cdi_is_used_if_the_engine_lists_the_devices(tmp_path: Path) -> None:
    info = {"CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}
    assert docker_gpus(info, tmp_path)[0] == "cdi"
    info["DiscoveredDevices"] = [{"Source": "cdi", "ID": "vendor.com/net=0"}]
    assert docker_gpus(info, tmp_path)[0] is None


def test_cdi_is_used_if_the_engine_reads_a_specification(tmp_path: Path) -> None:
    (tmp_path / "var/run/cdi").mkdir(parents=True)
    (tmp_path / "var/run/cdi/nvidia.yaml").write_text(SPECIFICATION)
    assert docker_gpus({"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}, tmp_path)[0] == "cdi"
    assert docker_gpus({"CDISpecDirs": ["/etc/cdi"]}, tmp_path)[0] is None
    assert docker_gpus({}, tmp_path)[0] is None  # an engine before CDI, such as 20.10
    assert docker_gpus({"Runtimes": {"runc": {}, "nvidia": {}}}, tmp_path)[0] == "gpus"
    assert podman_gpus(tmp_path)[0] == "cdi"


def test_missing_toolkit_is_reported_with_the_fix(tmp_path: Path, program: Any) -> None:
    by, reason = docker_gpus({"Runtimes": {"runc": {}}}, tmp_path)
    assert by is None
    assert "nvidia-ctk runtime configure --runtime=docker" in reason
    by, reason = docker_gpus({"CDISpecDirs": ["/etc/cdi"]}, tmp_path)
    assert by is None
    assert "nvidia-ctk cdi generate" in reason
    assert "nvidia-ctk cdi generate" in podman_gpus(tmp_path)[1]


# --- facts of inspections


def inspection(**host: Any) -> dict[str, Any]:
    settled = {"Privileged": False, "NetworkMode": "none", "ReadonlyRootfs": True, "IpcMode": "private"}
    return {
        "Id": "c0ffee",
        "Config": {"User": "1000:1000", "Tty": False},
        "HostConfig": {**settled, "ShmSize": 1 << 30, "Tmpfs": {"/tmp": "size=1g"}, **host},
        "Mounts": [{"Destination": "/data", "RW": False}, {"Destination": "/scratch", "RW": True}],
    }


IMAGE = {
    "Id": DIGEST,
    "RepoDigests": [f"b.example/x@{DIGEST}", f"a.example/x@{DIGEST}"],
    "RootFS": {"Layers": ["sha256:" + "01" * 32]},
    "Os": "linux",
    "Architecture": "arm64",
    "Variant": "v8",
    "Config": {"Labels": {"suite.workload": "ncf", "maintainer": "x"}},
    "Size": 7,
}


def test_containerd_store_has_no_config_digest() -> None:
    facts, reasons = container_facts(("docker", "29.0.0"), inspection(), engine_image(IMAGE, None), None)
    assert facts["image"]["config_digest"] is None
    assert "containerd" in reasons["container.image.config_digest"]
    assert facts["image"]["platform"] == "linux/arm64/v8"
    assert facts["image"]["labels"] == {"workload": "ncf"}
    assert facts["image"]["repo_digests"] == [DIGEST]
    assert unexplained({"facts": {"container": facts}, "reasons": reasons}) == (set(), set())


def test_removed_image_is_null_with_a_reason() -> None:
    facts, reasons = container_facts(("docker", "28.2.2"), inspection(), None, None)
    assert facts["image"] is None
    assert unexplained({"facts": {"container": facts}, "reasons": reasons}) == (set(), set())


def test_limits_come_from_the_engine_if_the_process_is_not_visible() -> None:
    host = {"NanoCpus": 1_500_000_000, "CpusetCpus": "1,0", "Memory": 1 << 30}
    facts, _ = container_facts(("docker", "28.2.2"), inspection(**host), engine_image(IMAGE, DIGEST), None)
    wanted = {"cpus": "1.5", "cpuset": "0-1", "memory_bytes": 1 << 30, "shm_bytes": 1 << 30}
    assert facts["limits"] == wanted
    quota = inspection(CpuQuota=50_000, CpuPeriod=100_000)
    facts, _ = container_facts(("podman", "4.3.1"), quota, engine_image(IMAGE, DIGEST), None)
    assert facts["limits"]["cpus"] == "0.5"


@pytest.mark.parametrize(
    ("user", "root"),
    [("", True), ("0", True), ("0:1000", True), ("root", True), ("1000", False), ("x", None)],
)
def test_root_is_recognised_by_user_id(user: str, root: bool | None) -> None:
    found = inspection()
    found["Config"]["User"] = user
    facts, reasons = container_facts(("docker", "28.2.2"), found, engine_image(IMAGE, DIGEST), None)
    assert facts["confinement"]["root"] is root
    assert ("container.confinement.root" in reasons) == (root is None)


def test_anonymous_volumes_count_as_writable() -> None:
    found = inspection()
    found["Mounts"].append({"Type": "volume", "Destination": "/var/lib/x", "RW": True})
    facts, _ = container_facts(("docker", "28.2.2"), found, engine_image(IMAGE, DIGEST), None)
    assert facts["confinement"]["writable"] == ["/scratch", "/tmp", "/var/lib/x"]


def test_digests_and_labels_are_filtered() -> None:
    assert digests_only([]) == []
    assert digests_only([f"b/x@{DIGEST}", f"a/x@{DIGEST}"]) == [DIGEST]
    assert suite_labels({"suite.b": "1", "a": "2", "suite.a": "3"}) == {"a": "3", "b": "1"}


# --- images as files


def test_file_digest_is_cached_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    path.write_bytes(b"one")
    assert file_digest(path) == hashlib.sha256(b"one").hexdigest()
    sidecar = tmp_path / "x.sif.sha256.json"
    record = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps({**record, "sha256": "cached"}))
    assert file_digest(path) == "cached"  # not read again
    stat = path.stat()
    time.sleep(0.05)  # older kernels count the time of a file in ticks
    path.write_bytes(b"two")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the same size and time of content
    assert file_digest(path) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize(
    ("tool", "reference", "wanted"),
    [
        ("apptainer", REFERENCE, f"docker://nvcr.io/nvidia/pytorch@{DIGEST}"),
        ("enroot", REFERENCE, f"docker://nvcr.io#nvidia/pytorch@{DIGEST}"),
        ("enroot", f"localhost:5000/suite/base@{DIGEST}", f"docker://localhost:5000#suite/base@{DIGEST}"),
        ("enroot", f"nvidia/cuda:12@{DIGEST}", f"docker://nvidia/cuda@{DIGEST}"),
    ],
)
def test_import_command_uses_the_digest(tool: str, reference: str, wanted: str, tmp_path: Path) -> None:
    argv = import_argv(tool, reference, tmp_path / "x")
    assert argv[0] == tool
    assert argv[-1] == wanted
    assert str(tmp_path / "x") in argv


def test_import_by_tag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineProblem, match="expected a reference with a digest"):
        import_argv("enroot", "nvcr.io/nvidia/pytorch:26.08-py3", tmp_path / "x")


def imported(tmp_path: Path, name: str = "x.sif") -> Path:
    path = tmp_path / name
    import_image("apptainer", "1.3.4", REFERENCE, path, _fetch)
    return path


def _fetch(argv: list[str]) -> None:
    Path(argv[-2]).write_bytes(b"an image")  # where a real tool would write


def test_import_record_is_valid_for_its_file_only(tmp_path: Path) -> None:
    path = imported(tmp_path)
    record = recorded_import(path)
    assert record is not None
    assert record.reference == f"nvcr.io/nvidia/pytorch@{DIGEST}"
    assert record.file_digest == hashlib.sha256(b"an image").hexdigest()
    assert record.tool == "apptainer 1.3.4"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []
    path.write_bytes(b"another image")
    assert recorded_import(path) is None
    assert recorded_import(tmp_path / "other.sif") is None


def test_failing_tool_leaves_no_file_and_no_record(tmp_path: Path, program: Any) -> None:
    program("apptainer", "echo 'FATAL: manifest unknown' >&2; exit 255")
    with pytest.raises(EngineProblem, match=r"could not import .*FATAL: manifest unknown"):
        import_image("apptainer", "1.3.4", REFERENCE, tmp_path / "images/x.sif")
    assert list((tmp_path / "images").iterdir()) == []
    with pytest.raises(EngineProblem, match="enroot is not on PATH"):
        import_image("enroot", "3.5.0", REFERENCE, tmp_path / "images/x.sqsh")
    with pytest.raises(EngineProblem, match="wrote no file"):
        import_image("apptainer", "1.3.4", REFERENCE, tmp_path / "images/x.sif", lambda argv: None)


def file_inputs(path: Path, limits: Limits) -> ContainerInputs:
    return ContainerInputs(
        image=str(path),
        name="suite-8f3a-0",
        environment={},
        mounts=(Mount(path.parent, SCRATCH, writable=True),),
        user=(1000, 1000),
        limits=limits,
        directory=path.parent,
    )


def test_attestation_of_a_file_depends_on_its_import_record(tmp_path: Path, program: Any) -> None:
    program("apptainer", "echo apptainer version 1.3.4")
    engine = FileEngine("apptainer")
    path = imported(tmp_path)
    engine.command(file_inputs(path, Limits.parse(cpus=1)))
    attested = engine.attest("suite-8f3a-0")
    assert attested.facts is not None
    assert attested.facts["worth"] == "file"
    assert attested.facts["image"]["imported_from"] == f"nvcr.io/nvidia/pytorch@{DIGEST}"
    assert attested.facts["image"]["file_digest"] == hashlib.sha256(b"an image").hexdigest()
    assert attested.facts["limits"]["cpus"] is None  # asked for, but no process to see it on
    assert attested.facts["confinement"]["network"] is None
    data = {"facts": {"container": attested.facts}, "reasons": attested.reasons}
    assert unexplained(data) == (set(), set())
    path.write_bytes(b"another image")
    attested = engine.attest("suite-8f3a-0")
    assert attested.facts is not None
    assert attested.facts["worth"] == "claimed"
    assert attested.facts["image"]["imported_from"] is None
    found = engine.image(str(path))
    assert found is not None
    assert found.repo_digests == ()
    with pytest.raises(EngineProblem, match="expected a worker started as other"):
        engine.attest("other")


def test_worker_of_a_file_runtime_is_found_among_descendants(tmp_path: Path, program: Any) -> None:
    """A client that starts the worker after a delay."""
    module = tmp_path / "suite"
    module.mkdir()
    (module / "__init__.py").touch()
    (module / "worker.py").write_text("import sys; sys.stdin.read()\n")
    program(
        "enroot",
        f"[ $1 = version ] && echo 3.5.0 && exit; /bin/sleep 0.2; {sys.executable} -s -m suite.worker",
    )
    engine = FileEngine("enroot")
    path = imported(tmp_path, "x.sqsh")
    command = engine.command(file_inputs(path, Limits()))
    argv = ["enroot", "start", "x"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=dict(command.environment), cwd=tmp_path) as client:
        attested = engine.attest("suite-8f3a-0", client.pid)
        assert client.stdin is not None
        client.stdin.close()
    assert attested.pid is not None
    assert attested.pid != client.pid
    assert attested.facts is not None
    assert attested.facts["confinement"]["network"] == "host"  # no container, as the kernel reports
    assert attested.facts["confinement"]["read_only"] is False
    with pytest.raises(EngineProblem, match="enroot ended before its worker"):
        engine.attest("suite-8f3a-0", client.pid)


def test_process_that_has_ended_is_not_the_worker() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        seen = psutil.Process(ended.pid)
    assert not is_worker(seen, ("-c", "pass"))


def test_worker_started_by_slurm_is_found_outside_the_descendants(tmp_path: Path, program: Any) -> None:
    """srun's tasks are children of a daemon; the client only waits."""
    module = tmp_path / "suite"
    module.mkdir()
    (module / "__init__.py").touch()
    (module / "worker.py").write_text("import time; time.sleep(20)\n")
    program("enroot", "echo 3.5.0")
    program(
        "srun",
        "[ $1 = --help ] && echo --container-image && exit\n"
        f"/usr/bin/setsid --fork {sys.executable} -s -m suite.worker; /bin/cat",
    )
    assert pyxis.available()
    engine = FileEngine("enroot")
    engine.start_with(pyxis.Pyxis())
    command = engine.command(file_inputs(imported(tmp_path, "x.sqsh"), Limits()))
    assert command.argv[0] == "srun"
    with subprocess.Popen(
        command.argv, stdin=subprocess.PIPE, env=dict(command.environment), cwd=tmp_path
    ) as client:
        attested = engine.attest("suite-8f3a-0", client.pid)
        assert attested.pid is not None
        assert attested.pid not in {child.pid for child in psutil.Process(client.pid).children()}
        os.kill(attested.pid, signal.SIGKILL)
        assert client.stdin is not None
        client.stdin.close()
    assert attested.facts is not None
    assert attested.facts["engine"] == "enroot"


@pytest.mark.parametrize("error", [ConnectionError("gone"), docker.errors.APIError("x", explanation="no")])
def test_docker_that_stops_is_an_engine_problem(error: Exception) -> None:
    """The worker's own failure is reported then, which an error of the engine must not hide."""

    def ask(name: str) -> None:
        raise error

    with pytest.raises(EngineProblem, match="docker did not do"):
        DockerEngine._ask(ask, "container")
