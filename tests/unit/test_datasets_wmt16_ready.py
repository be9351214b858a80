"""WMT16 from the ready-made files of the reference, and the index that the reader uses beside them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suite.contract import Job, Key
from suite.datasets import catalogue, prepare, wmt16
from suite.datasets.catalogue import CatalogueEntry
from suite.datasets.errors import DatasetCorrupt
from suite.workloads.gnmt import data, index, spec


@pytest.fixture
def ready(tmp_path: Path) -> tuple[Path, CatalogueEntry]:
    """A folder as the reference leaves it (the mini set), and an entry with its sums."""
    contents = catalogue.GENERATORS["wmt16-mini"].generate()
    entry = catalogue.entry("wmt16")
    folder = tmp_path / "ready"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    sums = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in contents.items()}
    return folder, replace(entry, published=sums)


def test_ready_made_files_are_verified_and_indexed(
    ready: tuple[Path, CatalogueEntry], tmp_path: Path
) -> None:
    folder, entry = ready
    assert entry.recipe is not None
    found = wmt16.obtain(entry, entry.recipe, tmp_path / "data", None, folder)
    assert found.digest == catalogue.entry("wmt16-mini").digest, "the same files"
    assert {path.parent.name for path in found.derived} == {"index"}
    assert set(found.paths) > set(found.derived)
    (folder / "train.tok.clean.bpe.32000.de").write_bytes(b"anders\n")
    with pytest.raises(DatasetCorrupt, match=r"train.tok.clean.bpe.32000.de: expected md5:"):
        wmt16.obtain(entry, entry.recipe, tmp_path / "other", None, folder)
    assert not (tmp_path / "other" / "wmt16").exists()


def test_manifest_cannot_override_published_checksums(
    ready: tuple[Path, CatalogueEntry], tmp_path: Path
) -> None:
    folder, entry = ready
    assert entry.recipe is not None
    root = tmp_path / "data"
    lax = wmt16.obtain(replace(entry, published={}), entry.recipe, root, None, folder)
    with pytest.raises(DatasetCorrupt, match=r"newstest2014.de: expected md5:0{32}"):
        prepare.check(
            replace(entry, published={"newstest2014.de": "md5:" + "0" * 32}), lax.path, None, verify=True
        )


def test_index_is_rewritten_for_other_text(ready: tuple[Path, CatalogueEntry], tmp_path: Path) -> None:
    folder, entry = ready
    assert entry.recipe is not None
    found = wmt16.obtain(entry, entry.recipe, tmp_path / "data", None, folder)
    about = found.path / "index" / "index.json"
    written = about.stat().st_mtime_ns
    assert prepare.derive(entry, found, None).derived == found.derived
    assert about.stat().st_mtime_ns == written, "it is there and of this text"
    prepare.derive(entry, replace(found, digest="0" * 64), None)
    assert about.stat().st_mtime_ns != written
    (found.path / "index" / f"{index.TEXTS[0]}.ids").write_bytes(b"cut")
    assert not index.current(found.path / "index", "0" * 64)


def test_reader_returns_equal_data_from_index_and_text(
    ready: tuple[Path, CatalogueEntry], tmp_path: Path
) -> None:
    folder, entry = ready
    assert entry.recipe is not None
    found = wmt16.obtain(entry, entry.recipe, tmp_path / "data", None, folder)
    key = Key("gnmt", "pytorch", "train", "offline", "fp32", 32, 1, "mini", "real", "warm", "v2")
    mapped, parsed = (
        data.Real(Job(key, "quality", 5, 0, {}, "cpu", 1, True, 0, 0, str(path), ""))
        for path in (found.path, folder)
    )
    assert isinstance(mapped._sources._ids, np.memmap)
    assert not isinstance(parsed._sources._ids, np.memmap)
    for step in (0, 1, mapped.steps_per_epoch):
        for name, array in mapped.batch(step).items():
            np.testing.assert_array_equal(array, parsed.batch(step)[name])
    for first, second in zip(mapped.evaluation(), parsed.evaluation(), strict=True):
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])
    assert mapped._sources[0][0] == spec.BOS
