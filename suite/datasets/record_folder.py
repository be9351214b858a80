"""A dataset in a storage format, ``<dataset>-<storage format>``, as a run reads it.

``make preprocess`` writes it. Its lists identify the dataset; they equal the source's, so the source itself
need not exist any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from secrets import SystemRandom
from typing import Any

from suite.datasets import catalogue
from suite.datasets.catalogue import CatalogueEntry, File
from suite.datasets.converted import compare_shard, require_files
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, storage_errors
from suite.datasets.prepare import CUSTOM, MANIFEST, STAMP, PreparedDataset
from suite.datasets.verify import VerifiedFiles, parallel, sha256_file, stamped, status, write_stamp
from suite.workloads.storage import SPLITS, Shard, layout

_SAMPLE = 4  # shards of those unchanged by size and times that are read again before each run


def prepare_stored(name: str, storage_format: str, root: Path) -> PreparedDataset:
    """The dataset ``name`` in ``storage_format`` under ``root``.

    Every shard is read at the first use; later those whose size or times have changed, and a sample. Raises
    ``DatasetMissing``, ``DatasetCorrupt``, ``StorageError``.
    """
    entry = catalogue.entry(name)
    folder = root / f"{name}-{storage_format}"
    again = f"make preprocess WORKLOAD={entry.workload} TO={storage_format} MEASURE=0"
    if not folder.exists():
        raise DatasetMissing(
            f"{name} is not in {folder} as {storage_format}. Run `{again}`, or use STORAGE=files."
        )
    fix = f"Remove the folder {folder} and run `{again}`."
    with storage_errors(folder):
        manifest = _manifest(folder, storage_format, fix)
        source = manifest["source"]
        lists = {file: _file(folder / file) for file in (f"{split}.txt" for split in SPLITS)}
        _check_lists(entry, folder, source, lists, fix)
        images = {split: _count(folder / f"{split}.txt") for split in SPLITS}
        shards = layout(images, source["images_per_shard"])
        state = VerifiedFiles(folder / STAMP, source["digest"], progress=None, again=False)
        _verify(folder, storage_format, manifest, shards, state)
    paths = tuple(folder / file for shard in shards for file in shard.files(storage_format))
    digest, kind, generator = source["digest"], source["kind"], source["generator"]
    inside = sum(images.values())
    return PreparedDataset(name, kind, folder, digest, lists, source["bytes"], generator, paths, inside)


def _manifest(folder: Path, storage_format: str, fix: str) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        source = manifest["source"]
        if manifest["storage"] != storage_format or not isinstance(source["images_per_shard"], int):
            raise ValueError(f"{manifest['storage']}, {source['images_per_shard']} images a shard")
        if not all(isinstance(row["sha256"], str) for row in manifest["shards"].values()):
            raise ValueError("a shard without a digest")
        if not {"name", "digest", "kind", "bytes", "generator"} <= source.keys():
            raise ValueError("a source without a field")
    except FileNotFoundError:
        raise DatasetCorrupt(str(path), "a manifest", "none", fix) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetCorrupt(str(path), f"a manifest of {storage_format}", str(error), fix) from error
    return dict(manifest)


def _file(path: Path) -> File:
    return File(path.stat().st_size, sha256_file(path))


def _count(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _check_lists(
    entry: CatalogueEntry, folder: Path, source: Mapping[str, Any], lists: Mapping[str, File], fix: str
) -> None:
    """DatasetCorrupt unless the lists are those of the source, and the source is that of the rules."""
    found = catalogue.digest_of({name: str(file.sha256) for name, file in lists.items()})
    if found != source["digest"]:
        raise DatasetCorrupt(f"{folder}: its lists", f"digest {source['digest']}", found, fix)
    if source["name"] != entry.name or (source["kind"] != CUSTOM and entry.digest not in (None, found)):
        raise DatasetCorrupt(
            f"{folder}: its source",
            f"{entry.name}, digest {entry.digest} (rules)",
            f"{source['name']}, digest {found}",
            fix,
        )


def _verify(
    folder: Path,
    storage_format: str,
    manifest: Mapping[str, Any],
    shards: Sequence[Shard],
    state: VerifiedFiles,
) -> None:
    fix = f"Remove the folder {folder} and convert again."
    seen: dict[str, list[int]] = {}
    for shard in shards:
        require_files(folder, shard.files(storage_format), fix)
        for name in shard.files(storage_format):
            seen[name] = status(folder / name)
    before = stamped(state)
    changed = [
        shard for shard in shards if any(before.get(n) != seen[n] for n in shard.files(storage_format))
    ]
    unchanged = [shard for shard in shards if shard not in changed]
    sample = SystemRandom().sample(unchanged, min(_SAMPLE, len(unchanged)))
    compare = partial(compare_shard, folder, storage_format, manifest, fix)
    for _ in parallel(compare, [*sample, *changed]):
        pass  # a damaged shard raises DatasetCorrupt
    if changed:
        write_stamp(state.stamp, state.digest, seen)
