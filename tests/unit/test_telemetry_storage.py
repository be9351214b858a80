"""File systems and disks as the kernel describes them, on imagined machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.telemetry.storage import storage_facts

MOUNTS = """\
25 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
26 25 0:22 / {folder}/lustre rw,relatime - lustre mgs@tcp:/fs rw
27 25 259:5 / {folder}/with\\040späce rw,relatime - xfs /dev/nvme0n1p1 rw
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root whose mounts are an NVMe disk's partition, a network file system, and a rotating disk."""
    root = tmp_path / "root"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(MOUNTS.format(folder=tmp_path))
    blocks = root / "sys/dev/block"
    blocks.mkdir(parents=True)
    for name, partition, rotational, model in (
        ("nvme0n1", "nvme0n1p2", 0, "Imagined SSD"),
        ("sda", "", 1, ""),
    ):
        disk = root / "sys/devices" / name
        (disk / "queue").mkdir(parents=True)
        (disk / "queue/rotational").write_text(f"{rotational}\n")
        if model:
            (disk / "device").mkdir()
            (disk / "device/model").write_text(f"{model}  \n")
        if partition:
            (disk / partition).mkdir()
            (disk / partition / "partition").write_text("2\n")
        (blocks / ("259:2" if partition else "259:5")).symlink_to(disk / partition)
    for name in ("lustre/data", "with späce", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return root


def test_partition_is_reported_with_its_disk(machine: Path, tmp_path: Path) -> None:
    facts, reasons = storage_facts({"source": tmp_path / "elsewhere" / "not" / "there"}, machine)
    assert facts == {"source": {"filesystem": "ext4", "disk": "Imagined SSD", "rotational": False}}
    assert reasons == {}


def test_network_file_system_has_no_disk_with_a_reason(machine: Path, tmp_path: Path) -> None:
    facts, reasons = storage_facts({"source": tmp_path / "lustre" / "data"}, machine)
    assert facts == {"source": {"filesystem": "lustre", "disk": None, "rotational": None}}
    why = "a file system of type lustre has no disk on this machine"
    assert reasons == {"source.disk": why, "source.rotational": why}


def test_disk_without_name_and_mount_with_space_and_umlaut_are_read(machine: Path, tmp_path: Path) -> None:
    facts, reasons = storage_facts({"destination": tmp_path / "with späce"}, machine)
    assert facts == {"destination": {"filesystem": "xfs", "disk": None, "rotational": True}}
    assert reasons == {"destination.disk": "the disk names no model"}


def test_storage_facts_of_this_machine_name_a_filesystem(tmp_path: Path) -> None:
    facts, _ = storage_facts({"source": tmp_path})
    assert facts["source"]["filesystem"]
