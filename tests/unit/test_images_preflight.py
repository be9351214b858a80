"""Refusals before a pull: the shipped images on common GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from suite import rules
from suite.containers.images import lock
from suite.containers.images.lock import Base, PlatformImage
from suite.containers.images.preflight import NGC_BUDGET_BYTES, GpuFacts, disk_budget, refusal
from tests.unit.fake_registry import Registry

SHIPPED = lock.read_folder(rules.load(rules.LATEST).images_folder)
T4, A100, L40S = GpuFacts("Tesla T4", "7.5"), GpuFacts("NVIDIA A100", "8.0"), GpuFacts("NVIDIA L40S", "8.9")
H200, B200, B300 = GpuFacts("NVIDIA H200", "9.0"), GpuFacts("NVIDIA B200", "10.0"), GpuFacts("B300", "10.3")
V100, RTX = GpuFacts("Tesla V100", "7.0"), GpuFacts("NVIDIA GeForce RTX 5090", "12.0")
UNKNOWN = GpuFacts("NVIDIA X1", None)


def refusal_of(base: Base, *gpus: GpuFacts, **changes: Any) -> str | None:
    arguments: dict[str, Any] = {"platform": "linux/amd64", "driver": None, "free_bytes": None, **changes}
    return refusal(base, gpus=gpus, **arguments)


@pytest.mark.parametrize(
    ("name", "gpu", "fix"),
    [
        ("tensorflow-19.02", H200, "take a newer image or a GPU of at most 7.5"),
        ("pytorch-19.01", A100, "take a newer image"),
        ("caffe-20.03", B200, "take a newer image"),
        ("mxnet-24.06", B200, "take another framework or a GPU of at most 9.0"),
        ("mxnet-24.06", RTX, "a GPU of at most 9.0"),
        ("pytorch-26.08", V100, "take an image made for it"),
    ],
)
def test_gpu_without_code_in_the_image_is_refused(name: str, gpu: GpuFacts, fix: str) -> None:
    found = refusal_of(SHIPPED[name], gpu)
    assert found is not None
    for expected_text in (SHIPPED[name].tagged, gpu.name, str(gpu.capability), fix):
        assert expected_text in found
    assert "\n" not in found
    assert refusal_of(SHIPPED[name], T4, gpu) == found or gpu is V100, "one GPU of several is enough"


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("pytorch-26.08", (T4, A100, L40S, H200, B200, B300, RTX)),
        ("tensorflow-25.02", (V100, H200, B200, RTX)),
        ("mxnet-24.06", (V100, T4, A100, L40S, H200)),
        ("tensorflow-19.02", (V100, T4)),
        ("mxnet-24.06", (UNKNOWN,)),
        ("mxnet-24.06", ()),
    ],
)
def test_supported_or_unknown_gpu_is_not_refused(name: str, gpus: tuple[GpuFacts, ...]) -> None:
    assert refusal_of(SHIPPED[name], *gpus) is None


@pytest.mark.parametrize(
    ("name", "gpu", "driver", "floor"),
    [
        ("pytorch-26.08", RTX, "575.64.03", "580"),
        ("pytorch-26.08", RTX, "580.82.07", None),
        ("pytorch-26.08", H200, "570.158.08", None),  # NVIDIA states no minimum for its package
        ("mxnet-24.06", A100, "450.80.02", "470.57"),
        ("mxnet-24.06", A100, "470.57.02", None),
        ("mxnet-24.06", GpuFacts("NVIDIA GeForce RTX 4090", "8.9"), "535.104.12", "545"),
        ("mxnet-24.06", A100, None, None),
    ],
)
def test_driver_below_the_minimum_is_refused(
    name: str, gpu: GpuFacts, driver: str | None, floor: str | None
) -> None:
    found = refusal_of(SHIPPED[name], gpu, driver=driver)
    if floor is None:
        assert found is None
    else:
        assert found is not None
        for expected_text in (f"driver {floor} or newer", str(driver), "update the driver"):
            assert expected_text in found


def test_machine_without_gpu_needs_no_driver() -> None:
    assert refusal_of(SHIPPED["pytorch-26.08"], driver="1.0") is None


def test_platform_that_the_image_lacks_is_refused() -> None:
    known = {"linux/amd64": PlatformImage()}
    read = Registry().base(repository="localhost:5000/a", platforms=known, resolved_at="2026-11-03T00:00:00Z")
    found = refusal_of(read, platform="linux/arm64")
    assert found is not None
    assert "exists for linux/amd64, this machine is linux/arm64" in found
    assert refusal_of(read) is None
    unread = Registry().base(repository="localhost:5000/a", platforms=known)
    assert refusal_of(unread, platform="linux/arm64") is None, "an unread list may lack a platform"


def test_image_larger_than_the_free_space_is_refused() -> None:
    base = SHIPPED["mxnet-24.06"]
    found = refusal_of(base, free_bytes=59_900_000_000)
    assert found is not None
    assert "needs 60 GB of disk" in found
    assert "59.9 GB are free" in found
    assert refusal_of(base, free_bytes=NGC_BUDGET_BYTES) is None
    small = Registry().base(
        repository="localhost:5000/a",
        unpacked_bytes=300,
        platforms={"linux/amd64": PlatformImage(compressed_bytes=100)},
    )
    assert disk_budget(small, "linux/amd64") == 400
    assert refusal_of(small, free_bytes=399) is not None
    assert refusal_of(small, free_bytes=400) is None
    assert refusal_of(Registry().base(repository="localhost:5000/a"), free_bytes=0) is None
