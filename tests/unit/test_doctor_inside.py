"""The doctor's probe inside a container: its report, and the checks made from the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from suite.containers.engines.attestation import Attestation
from suite.containers.engines.container import Limits
from suite.doctor import gpu
from suite.doctor.inside import ContainerRequest, container_checks
from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject
from suite.plan.machine import detect_machine

ROOT = Path(__file__).resolve().parents[2]


def report(**changes: Any) -> dict[str, Any]:
    found = {
        "monotonic_ns": 1_500,
        "python": "3.12.3",
        "user": [65534, 65534],
        "capabilities": "",
        "no_new_privileges": True,
        "writable": ["/scratch", "/tmp"],
        "read_only": ["/", "/data"],
        "network": [],
        "shm_bytes": 1 << 28,
        "limits": {"memlock": -1, "stack": 67_108_864, "nofile": 1 << 20},
        "gpu": {"files": ["nvidia0"], "devices": 1, "driver_cuda": "13.0", "problem": None},
        "label": {"workload": "ncf", "framework": "pytorch"},
    }
    return {**found, **changes}


LIMITS = Limits(cpus="1", memory_bytes=1 << 30, shm_bytes=1 << 28)
NO_DEVICE = {"files": ["nvidia0"], "devices": None, "driver_cuda": None, "problem": "libcuda.so.1 is away"}


def checks_by_name(
    in_force: dict[str, Any] | None = None, asked: dict[str, Any] | None = None, /, **changes: Any
) -> dict[str, DoctorCheck]:
    options: dict[str, Any] = {"limits": LIMITS, "gpus": 1, "labelled": True, "cannot": {}, **(asked or {})}
    facts = {
        "limits": {"cpus": "1", "memory_bytes": 1 << 30, **(in_force or {})},
        "image": {"labels": {"workload": "ncf", "framework": "pytorch"}},
    }
    attested = Attestation(facts, {"container.limits.cpus": "nothing enforces it: no limit is set"}, 1)
    return {
        c.name: c
        for c in container_checks(report(**changes), attested, (1_000, 2_000), ContainerRequest(**options))
    }


def test_correct_container_passes_every_check() -> None:
    found = checks_by_name()
    assert {check.state for check in found.values()} == {OK}
    assert len(found) == 11


@pytest.mark.parametrize(
    ("changes", "name", "state"),
    [
        ({"python": "3.8.10"}, "Python", FAIL),
        ({"user": [0, 0]}, "user", FAIL),
        ({"capabilities": "200000"}, "user", WARN),
        ({"no_new_privileges": False}, "user", WARN),
        ({"read_only": ["/"]}, "read-only", FAIL),
        ({"writable": ["/opt", "/scratch", "/tmp"]}, "read-only", FAIL),
        ({"writable": ["/tmp"]}, "scratch", FAIL),
        ({"network": ["192.0.2.1"]}, "network", FAIL),
        ({"shm_bytes": 1 << 26}, "shm", FAIL),
        ({"limits": {"memlock": 65536, "stack": 67_108_864, "nofile": 1024}}, "ulimit", WARN),
        ({"limits": {"memlock": -1, "stack": 8 << 20, "nofile": 1024}}, "ulimit", WARN),
        ({"gpu": NO_DEVICE}, "GPU", FAIL),
        ({"gpu": {**NO_DEVICE, "devices": 2, "problem": None}}, "GPU", FAIL),
        ({"monotonic_ns": 999}, "clock", FAIL),
        ({"monotonic_ns": 3_600_000_002_000}, "clock", FAIL),
        ({"label": None}, "label", FAIL),
        ({"label": {"workload": "gnmt", "framework": "pytorch"}}, "label", FAIL),
    ],
)
def test_each_fault_fails_exactly_one_check(changes: dict[str, Any], name: str, state: str) -> None:
    found = checks_by_name(None, None, **changes)
    wrong = {check.name: check.state for check in found.values() if check.state != OK}
    assert wrong == {f"start {name}": state}


def test_clock_offset_is_reported() -> None:
    assert checks_by_name(monotonic_ns=3_600_000_002_000)["start clock"].found.endswith(
        "inside is +3600.000 s off"
    )


@pytest.mark.parametrize("limits", [{"cpus": None}, {"memory_bytes": 1 << 40}])
def test_unenforced_limit_fails(limits: dict[str, Any]) -> None:
    check = checks_by_name(limits)["start limits"]
    assert check.state == FAIL
    assert next(iter(limits)) in check.found


def test_options_a_runtime_cannot_enforce_are_skipped() -> None:
    asked = {"limits": Limits(), "cannot": {"network": "no namespace", "cpus": "no option", "shm_bytes": "x"}}
    found = checks_by_name(None, asked, network=["192.0.2.1"], shm_bytes=5)
    skipped = {check.name for check in found.values() if check.state == SKIP}
    assert skipped == {"start network", "start limits", "start shm"}
    assert not [check for check in found.values() if check.state in (WARN, FAIL)]


def test_unrequested_gpu_is_a_warning() -> None:
    assert checks_by_name(None, {"gpus": 0})["start GPU"].state == WARN
    assert checks_by_name(None, {"gpus": 0}, gpu={**NO_DEVICE, "files": []})["start GPU"].state == OK


# The probe itself


def probe(request: bytes) -> subprocess.CompletedProcess[bytes]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    return subprocess.run(
        # -I would hide PYTHONPATH; -S hides every installed package: the probe may need none.
        [sys.executable, "-s", "-S", "-m", "suite.worker.probe"],
        input=request,
        env=environment,
        capture_output=True,
        timeout=30,
        check=False,
    )


def test_probe_answers_once_and_needs_only_the_standard_library(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    done = probe(b"\n")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == set(report())
    assert before <= found["monotonic_ns"] <= time.monotonic_ns()
    assert found["user"] == [os.geteuid(), os.getegid()]
    state = os.statvfs("/dev/shm")
    assert found["shm_bytes"] == state.f_blocks * state.f_frsize
    assert "/tmp" in found["writable"]
    assert not list(Path("/tmp").glob(".suite-probe-*"))


def test_probe_ends_at_the_end_of_stdin() -> None:
    done = probe(b"")
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.gpu
def test_probe_counts_the_same_gpus_as_nvml() -> None:
    if not detect_machine().gpus:
        pytest.skip("no NVIDIA GPU here")
    found = json.loads(probe(b"\n").stdout)["gpu"]
    assert found["problem"] is None
    assert found["devices"] == len(detect_machine().gpus)
    assert [check.state for check in gpu.driver(Subject())] == [OK]
    assert FAIL not in [check.state for check in gpu.state(Subject())]
