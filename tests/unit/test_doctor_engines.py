"""The doctor on engines, their storage, GPUs, and the images that are to run on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from suite.doctor import engines, gpu
from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject
from suite.plan.machine import Gpu, Machine
from suite.telemetry.nvml import Devices
from tests.unit.doctor_subject import H100, states, subject
from tests.unit.fake_nvml import FakeDevice, FakeNvml


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, and no variable with the address of an engine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def engine_checks(one: Subject) -> list[DoctorCheck]:
    return [check for _, function in engines.check_functions(one.runtime) for check in function(one)]


def test_without_any_engine_runs_are_native(programs: Path) -> None:
    found = engine_checks(subject())
    assert states(found) == {
        **{f"engine {name}": SKIP for name in ("docker", "podman", "apptainer", "enroot")},
        "engine": WARN,
        "engine storage": SKIP,
        "engine GPU": SKIP,
    }
    assert "not on PATH" in found[0].found


@pytest.mark.parametrize(
    "options", [{"runtime": "docker"}, {"frameworks": ("pytorch",)}, {"look": lambda: H100}]
)
def test_missing_engine_fails_if_a_container_is_needed(options: dict[str, Any], programs: Path) -> None:
    found = engine_checks(subject(**options))
    assert states(found)["engine"] == FAIL
    if options.get("runtime"):
        assert [check.name for check in found][:2] == ["engine docker", "engine"]
        assert found[0].state == FAIL
        assert found[0].fix == "install docker"


@pytest.mark.parametrize(("runtime", "state"), [("auto", WARN), ("docker", FAIL)])
def test_dead_socket_is_reported_with_its_fix(
    runtime: str, state: str, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "docker", "exit 1")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{programs}/dead.sock")
    check = engine_checks(subject(runtime=runtime))[0]
    assert (check.name, check.state) == ("engine docker", state)
    assert check.found.endswith(f"no daemon answers at unix://{programs}/dead.sock")
    assert check.fix.startswith("start it (sudo systemctl start docker)")


def test_native_needs_no_engine(programs: Path) -> None:
    found = engine_checks(subject(runtime="native", look=lambda: H100))
    assert states(found) == {"engine": SKIP, "engine storage": SKIP, "engine GPU": SKIP}


@pytest.mark.parametrize(
    ("free", "options", "state"),
    [
        (10**12, {}, OK),
        (10**9, {}, WARN),
        (10**9, {"frameworks": ("pytorch",)}, FAIL),
        (10**9, {"runtime": "apptainer"}, FAIL),
    ],
)
def test_engine_storage_without_space_is_reported(
    free: int, options: dict[str, Any], state: str, programs: Path, tmp_path: Path
) -> None:
    program(programs, "apptainer", "echo apptainer version 1.3.4")
    one = subject(free_bytes=lambda _: free, cache_dir=tmp_path / "cache", **options)
    check = next(check for check in engine_checks(one) if check.name == "engine storage")
    assert check.state == state
    assert f"free in {tmp_path}" in check.found
    if state != OK:
        assert "pytorch-26.08" in check.found
        assert "free 59 GB" in check.fix


def test_engine_without_gpu_access_fails(programs: Path) -> None:
    program(programs, "apptainer", "echo apptainer version 1.3.4")
    check = engine_checks(subject(look=lambda: H100))[-1]
    assert (check.name, check.state) == ("engine GPU", FAIL)
    assert check.found == "nvidia-smi is not on PATH"
    program(programs, "nvidia-smi", "exit 0")
    assert engine_checks(subject(look=lambda: H100))[-1].state == OK


# GPUs and images


def machine(capability: str, driver: str) -> Machine:
    return Machine(16, (Gpu("GPU-1", "NVIDIA V100", 32 << 30, capability),), None, driver)


@pytest.mark.parametrize(
    ("capability", "driver", "options", "state"),
    [
        ("9.0", "580.95.05", {}, OK),
        ("7.0", "580.95.05", {}, WARN),
        ("7.0", "580.95.05", {"frameworks": ("pytorch",)}, FAIL),
    ],
)
def test_image_is_compared_with_gpu(
    capability: str, driver: str, options: dict[str, Any], state: str
) -> None:
    one = subject(look=lambda: machine(capability, driver), **options)
    check = next(check for check in engines.preflight(one) if check.name == "image pytorch")
    assert check.state == state
    if state != OK:
        assert "has code for compute capability" in check.found
        assert check.fix.startswith("take ")


def pci(root: Path, vendor: str, kind: str) -> None:
    folder = root / f"sys/bus/pci/devices/{vendor}-{kind}"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text(kind + "\n")


def test_gpu_on_bus_without_driver_fails(tmp_path: Path) -> None:
    (check,) = gpu.driver(subject(root=tmp_path))
    assert check.state == SKIP
    pci(tmp_path, "0x10de", "0x0c0330")  # a USB controller of NVIDIA
    pci(tmp_path, "0x1002", "0x030000")  # somebody else's GPU
    (check,) = gpu.driver(subject(root=tmp_path))
    assert check.state == SKIP
    pci(tmp_path, "0x10de", "0x030200")
    (check,) = gpu.driver(subject(root=tmp_path))
    assert (check.state, check.found) == (FAIL, "1 NVIDIA GPU on the PCI bus, but no driver is loaded")


def test_visible_devices_that_hide_every_gpu_fail() -> None:
    hidden = Machine(2, (), "7", "580.95.05")
    (check,) = gpu.driver(subject(look=lambda: hidden))
    assert (check.state, check.found) == (FAIL, "CUDA_VISIBLE_DEVICES=7 shows no GPU")


def test_gpu_is_reported_with_its_driver() -> None:
    (check,) = gpu.driver(subject(look=lambda: H100))
    assert check.state == OK
    assert check.found == "driver 580.95.05, 1 GPU: NVIDIA H100 80GB HBM3 (9.0, 86 GB)"


@pytest.mark.parametrize(
    ("pids", "mode", "expected"),
    [
        ([], 0, {"GPU 0 processes": OK}),
        ([os.getpid()], 0, {"GPU 0 processes": OK}),
        ([1], 0, {"GPU 0 processes": WARN}),
        ([], 2, {"GPU 0 mode": FAIL, "GPU 0 processes": OK}),
    ],
)
def test_other_processes_on_gpu_are_reported(
    pids: list[int], mode: int, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml([FakeDevice("GPU-1", pids=pids)])
    monkeypatch.setattr(fake, "NVML_COMPUTEMODE_PROHIBITED", 2, raising=False)
    monkeypatch.setattr(fake, "nvmlDeviceGetComputeMode", lambda _: mode, raising=False)
    devices = Devices(["GPU-1"], nvml=fake)
    assert devices.reason is None
    found = list(gpu._of_one(devices, devices.handles[0], "GPU 0"))
    assert states(found) == expected
    if WARN in expected.values():
        assert found[-1].found == f"other processes on it (1): {Path('/proc/1/comm').read_text().strip()}"
