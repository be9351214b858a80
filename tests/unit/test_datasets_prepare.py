"""Preparation: datasets are generated once, always verified, and every defect is named."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suite.datasets import catalogue, evict, prepare, verify
from suite.datasets.errors import (
    DatasetCorrupt,
    DatasetError,
    DatasetMissing,
    NoSpace,
    ReadOnly,
    UnknownDataset,
)

NAME = "wmt16-mini"
FILE = "newstest2014.de"


@pytest.fixture
def prepared(tmp_path: Path) -> prepare.PreparedDataset:
    return prepare.prepare(NAME, tmp_path)


def test_dataset_is_generated_once_with_a_manifest(tmp_path: Path) -> None:
    assert not prepare.available(NAME, tmp_path)
    calls: list[str] = []
    first = prepare.prepare(NAME, tmp_path, lambda task, done, total: calls.append(task))
    assert any(task.startswith("generating") for task in calls)
    times = {path: path.stat().st_mtime_ns for path in first.paths}
    calls.clear()
    again = prepare.prepare(NAME, tmp_path, lambda task, done, total: calls.append(task))
    assert again == first
    assert not calls, "the second use neither generates nor hashes"
    assert times == {path: path.stat().st_mtime_ns for path in first.paths}
    assert prepare.available(NAME, tmp_path)
    manifest = json.loads((first.path / "manifest.json").read_text())
    assert manifest["digest"] == first.digest == catalogue.entry(NAME).digest
    assert manifest.keys() == {"name", "kind", "generator", "parameters", "files", "digest"}
    assert manifest["generator"] == first.generator == "wmt16-mini/1"
    assert first.bytes == sum(path.stat().st_size for path in first.paths)
    assert first.identity()["files"] == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME], "no temporary folder stays"


def test_verify_option_hashes_again(prepared: prepare.PreparedDataset, tmp_path: Path) -> None:
    calls: list[str] = []
    prepare.prepare(NAME, tmp_path, lambda task, done, total: calls.append(task), verify=True)
    assert set(calls) == {f"verifying {NAME}"}


def test_concurrent_generation_gives_one_dataset(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: prepare.prepare(NAME, tmp_path), range(4)))
    assert len({result.digest for result in results}) == 1
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_changed_byte_with_equal_size_and_time_is_found(
    prepared: prepare.PreparedDataset, tmp_path: Path
) -> None:
    path = prepared.path / FILE
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DatasetCorrupt) as caught:
        prepare.prepare(NAME, tmp_path)
    expected = catalogue.entry(NAME).files[FILE].sha256
    assert caught.value.file == str(path)
    assert str(expected) in caught.value.expected
    assert caught.value.found == verify.sha256_file(path)
    assert "Remove the folder" in str(caught.value)
    with pytest.raises(DatasetCorrupt):
        prepare.prepare(NAME, tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / FILE).unlink(), "no such file"),
        (lambda folder: (folder / FILE).write_bytes(b"short"), "12425 bytes"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest"),
        (lambda folder: _edit(folder, digest="0" * 64), "digest"),
        (lambda folder: _edit(folder, generator="wmt16-mini/0"), "wmt16-mini/1"),
        (lambda folder: _edit(folder, name="other"), "name"),
        (lambda folder: _edit(folder, files={}), "manifest"),
    ],
)
def test_damaged_file_is_named(
    prepared: prepare.PreparedDataset, tmp_path: Path, damage: object, message: str
) -> None:
    damage(prepared.path)  # type: ignore[operator]
    with pytest.raises(DatasetCorrupt, match=message) as caught:
        prepare.prepare(NAME, tmp_path)
    assert caught.value.exit_code == 12


def _edit(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_manifest_cannot_override_the_rules(prepared: prepare.PreparedDataset, tmp_path: Path) -> None:
    """Data and manifest changed together still differ from the rules."""
    (prepared.path / FILE).write_bytes(b"x" * 12425)
    manifest = json.loads((prepared.path / "manifest.json").read_text())
    manifest["files"][FILE]["sha256"] = verify.sha256_file(prepared.path / FILE)
    digest = catalogue.digest_of({name: file["sha256"] for name, file in manifest["files"].items()})
    _edit(prepared.path, files=manifest["files"], digest=digest)
    with pytest.raises(DatasetCorrupt, match="rules"):
        prepare.prepare(NAME, tmp_path)


def test_missing_official_dataset_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match="make data WORKLOAD=ncf"):
        prepare.prepare("ml-1m", tmp_path)
    with pytest.raises(DatasetMissing, match="make data WORKLOAD=gnmt"):
        prepare.prepare("wmt16", tmp_path)
    assert not any(tmp_path.iterdir())


def test_unknown_dataset_has_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UnknownDataset, match=r"Did you mean ml-1m-mini\?"):
        prepare.prepare("ml-1m-mni", tmp_path)
    with pytest.raises(UnknownDataset, match="Known are"):
        prepare.prepare("../etc/passwd", tmp_path)


def test_read_only_data_root_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ReadOnly, match="DATA_ROOT") as caught:
        prepare.prepare(NAME, Path("/sys/suite-data"))
    assert caught.value.exit_code == 15
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="DATA_ROOT"):
        prepare.prepare(NAME, tmp_path / "file" / "below")


def test_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def write_bytes(self: Path, data: bytes) -> int:
        if self.name.startswith("train"):
            real(self, data[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(NoSpace, match="No space left"):
        prepare.prepare(NAME, tmp_path)
    assert not any(tmp_path.iterdir())


def test_generator_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = catalogue.Generator("wmt16-mini/1", dict, lambda: {FILE: b"other"})
    monkeypatch.setitem(catalogue.GENERATORS, NAME, broken)
    with pytest.raises(DatasetCorrupt, match="computes other bytes"):
        prepare.prepare(NAME, tmp_path)
    assert not any(tmp_path.iterdir())


def test_evict_and_warm_change_resident_bytes(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(3 * 1024 * 1024 + 5))
    size = path.stat().st_size
    assert evict.warm([path]) == size
    assert evict.resident(path) == size
    gone = evict.evict([path])
    assert gone == size - evict.resident(path)
    if _in_memory(tmp_path):
        assert gone == 0
    else:
        assert gone == size
        assert evict.warm([path]) == size
        assert evict.resident(path) == size
    (tmp_path / "empty").write_bytes(b"")
    assert evict.evict([tmp_path / "empty"]) == 0


def _in_memory(folder: Path) -> bool:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(len(point), kind) for point, kind in mounts if folder.is_relative_to(point)]
    return max(inside)[1] in ("tmpfs", "ramfs")
