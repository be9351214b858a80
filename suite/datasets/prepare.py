"""Prepare a dataset for a worker: present, complete and verified.

Mini data are generated at the first use. Official data are only verified; the user fetches them (see
``suite.datasets.fetch``). A folder appears by one rename, so that concurrent or killed processes never leave
an incomplete dataset under the final name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.contract import BadData
from suite.datasets import catalogue, image_folder
from suite.datasets.catalogue import CatalogueEntry, File
from suite.datasets.errors import DatasetCorrupt, DatasetError, DatasetMissing, ReadOnly, storage_errors
from suite.datasets.verify import Progress, VerifiedFiles, compare
from suite.workloads import derived
from suite.workloads.faster_rcnn import backbone
from suite.workloads.faster_rcnn import index as coco_index
from suite.workloads.gnmt import index as gnmt_index

MANIFEST = "manifest.json"
STAMP = ".verified.json"
_INDEXES = {"faster_rcnn": coco_index, "gnmt": gnmt_index}  # by workload
CUSTOM = "custom"  # the kind of a custom dataset, which only its digest identifies


@dataclass(frozen=True, slots=True)
class PreparedDataset:
    """A verified dataset on disk."""

    name: str
    kind: str
    path: Path
    digest: str
    files: Mapping[str, File]
    bytes: int
    generator: str | None
    derived: tuple[Path, ...] = ()  # further files for the reader, computed from the data on this machine
    inside: int = 0  # files of the dataset inside records instead of the folder

    @property
    def count(self) -> int:
        """The number of files of the dataset in any storage format."""
        return len(self.files) + self.inside

    @property
    def paths(self) -> list[Path]:
        """The files that a run may read: data files sorted by name (no manifest), then derived ones."""
        return [*(self.path / name for name in sorted(self.files)), *self.derived]

    def identity(self) -> dict[str, str | int | None]:
        """The log header's ``dataset``; no generator where the data are official."""
        return {
            "name": self.name,
            "kind": self.kind,
            "digest": self.digest,
            "files": self.count,
            "bytes": self.bytes,
            "generator": self.generator,
        }


def prepare(name: str, root: Path, progress: Progress | None = None, verify: bool = False) -> PreparedDataset:
    """Dataset ``name`` under ``root``; a mini dataset is generated where it is absent.

    SHA-256 of every file is computed at the first use and with ``verify``; later only where size or times
    have changed, and for a random sample of the images. Raises ``UnknownDataset``, ``DatasetMissing``,
    ``DatasetCorrupt``, ``NoSpace``, ``ReadOnly``.
    """
    entry = catalogue.entry(name)
    folder = root / name
    if not folder.exists():
        if entry.kind != "mini":
            raise missing_dataset(entry, folder)
        _generate(entry, root, progress)
    return derive(entry, check(entry, folder, progress, verify), progress)


def available(name: str, root: Path) -> bool:
    """Whether :func:`prepare` would succeed without generating or fetching; a corrupt dataset raises."""
    entry = catalogue.entry(name)
    folder = root / name
    if not folder.exists():
        return False
    check(entry, folder, None, False, whole=False)
    return True


def derive(entry: CatalogueEntry, prepared: PreparedDataset, progress: Progress | None) -> PreparedDataset:
    """``prepared`` with its index, where the dataset is too large to be parsed by every run.

    The index is written where it is missing or of other files; a read-only dataset is used without it.
    """
    if entry.kind == "mini" or entry.workload not in _INDEXES:
        return prepared
    index = _INDEXES[entry.workload]
    target = prepared.path / derived.FOLDER
    if not index.current(target, prepared.digest):
        task = f"indexing {entry.name}"
        try:
            with (
                storage_errors(prepared.path),
                building(target.name, prepared.path, replacing=True) as folder,
            ):
                report = progress or (lambda *_: None)
                index.write(prepared.path, folder, prepared.digest, lambda a, b: report(task, a, b))
        except ReadOnly:
            return prepared
        except BadData as error:
            raise DatasetError(f"{prepared.path}: {error}") from error
        except ValueError as error:
            raise DatasetCorrupt(
                str(prepared.path), "text that fits its vocabulary", str(error), ""
            ) from error
    return replace(prepared, derived=tuple(sorted(target.iterdir())))


def missing_weights(entry: CatalogueEntry, folder: Path) -> str | None:
    """Why quality runs at reference scale cannot start: ``folder`` has no backbone; None if it has."""
    if entry.weights is None or (folder / backbone.FILE).exists():
        return None
    again = f"make data WORKLOAD={entry.workload}"
    return (
        f"quality runs start from {entry.weights.name}, which is missing: `{again}` fetches it, "
        f"`{again} FROM={entry.weights.name}` takes your copy"
    )


def missing_dataset(entry: CatalogueEntry, folder: Path) -> DatasetMissing:
    """The error for an official dataset that is absent."""
    if entry.unavailable:
        return DatasetMissing(f"{entry.name} is not in {folder}: {entry.unavailable}. Use data=synthetic.")
    command = f"make data WORKLOAD={entry.workload}"
    if not entry.fetchable:
        return DatasetMissing(
            f"{entry.name} is not in {folder}, and its publisher gives it to registered users only. Run "
            f"`{command} FROM=path` on your folder, or use data=synthetic."
        )
    return DatasetMissing(
        f"{entry.name} is not in {folder}. Run `{command}` to fetch it, `{command} FROM=path` to take your "
        f"copy, or use data=synthetic."
    )


def _generate(entry: CatalogueEntry, root: Path, progress: Progress | None) -> None:
    generator = catalogue.GENERATORS[entry.name]
    if progress:
        progress(f"generating {entry.name}", 0, entry.bytes)
    contents = generator.generate()
    # For a dataset of images these are its lists, which contain the digest of each image.
    checksums = {name: hashlib.sha256(contents[name]).hexdigest() for name in entry.files if name in contents}
    if catalogue.digest_of(checksums) != entry.digest:
        raise DatasetCorrupt(
            f"generator {generator.version}",
            f"digest {entry.digest}",
            catalogue.digest_of(checksums),
            "This Python or numpy computes other bytes: run `make test`, and report it.",
        )
    with storage_errors(root), building(entry.name, root) as folder:
        for parent in {(folder / name).parent for name in contents}:
            parent.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        write_manifest(entry, folder, checksums, generator.parameters())
    if progress:
        progress(f"generating {entry.name}", entry.bytes or 0, entry.bytes)


@contextmanager
def building(name: str, root: Path, replacing: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``root/name`` at the end of the block, unless that exists by then.

    ``replacing`` removes an existing ``root/name`` first.
    """
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
    temporary.mkdir()
    try:
        yield temporary
        for path in temporary.iterdir():
            if not path.is_symlink():  # links lead to folders of the site, which the suite only reads
                flush(path)
        if replacing:
            shutil.rmtree(root / name, ignore_errors=True)
        try:
            temporary.rename(root / name)
        except OSError:
            if not replacing and not (root / name / MANIFEST).exists():
                raise
        else:
            flush(root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def flush(path: Path) -> None:
    """Flush a file or the entries of a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_manifest(
    entry: CatalogueEntry,
    folder: Path,
    checksums: Mapping[str, str],
    parameters: Mapping[str, Any],
    kind: str = "",
) -> None:
    """Write ``manifest.json`` to ``folder``; ``kind`` where it differs from the entry's."""
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha} for name, sha in checksums.items()
    }
    manifest = {
        "name": entry.name,
        "kind": kind or entry.kind,
        "generator": entry.generator,
        "parameters": dict(parameters),
        "files": files,
        "digest": catalogue.digest_of(checksums),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", "utf-8")


def check(
    entry: CatalogueEntry, folder: Path, progress: Progress | None, verify: bool, *, whole: bool = True
) -> PreparedDataset:
    """Compare ``folder`` with its manifest and the rules; see :func:`prepare`.

    With ``whole`` False the images of a dataset that has lists are not compared: they may be a million.
    """
    fix = _fix(entry, folder)
    manifest = read_manifest(folder, fix)
    expected = _expected(entry, manifest, fix)
    if entry.images is not None:
        with storage_errors(folder):
            compare(folder, expected, fix)  # before they are believed
        if whole:
            expected |= image_folder.listed(folder, fix, image_folder.splits_of(entry.files))
    if whole or entry.images is None:
        with storage_errors(folder):
            state = VerifiedFiles(folder / STAMP, manifest["digest"], progress, verify)
            hasher = image_folder.hasher(entry.images)
            expected = compare(folder, expected, fix, state, hasher, entry.checksums)
    return PreparedDataset(
        entry.name,
        manifest["kind"],
        folder,
        manifest["digest"],
        expected,
        sum(file.bytes or 0 for file in expected.values()),
        manifest["generator"],
    )


def _fix(entry: CatalogueEntry, folder: Path) -> str:
    if entry.kind == "mini":
        return f"Remove the folder {folder}: the next run generates it again."
    command = f"make data WORKLOAD={entry.workload}" + ("" if entry.fetchable else " FROM=path")
    return f"Remove the folder {folder} and run `{command}` again."


def read_manifest(folder: Path, fix: str) -> dict[str, Any]:
    """The parsed manifest of ``folder``; raises ``DatasetCorrupt`` where it is invalid."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        for name, file in manifest["files"].items():
            if not isinstance(file["bytes"], int) or not re.fullmatch("[0-9a-f]{64}", file["sha256"]):
                raise ValueError(f"bad entry of {name}")
        found = catalogue.digest_of({name: file["sha256"] for name, file in manifest["files"].items()})
        if manifest["digest"] != found:
            raise ValueError("its digest is not that of its files")
        if not {"name", "kind", "generator"} <= manifest.keys():
            raise ValueError("a field is missing")
    except FileNotFoundError:
        raise DatasetCorrupt(str(path), "a manifest", "none", fix) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetCorrupt(str(path), "a manifest as this suite writes it", str(error), fix) from error
    return dict(manifest)


def _expected(entry: CatalogueEntry, manifest: Mapping[str, Any], fix: str) -> dict[str, File]:
    """The required sizes and checksums of the files: from the rules, else from the manifest."""
    if set(manifest["files"]) != set(entry.files):
        raise DatasetCorrupt(MANIFEST, f"the files {list(entry.files)}", f"{sorted(manifest['files'])}", fix)
    custom = entry.images is not None and manifest["kind"] == CUSTOM
    promised = {"name": entry.name, "generator": entry.generator, "digest": None if custom else entry.digest}
    if not custom:
        promised["kind"] = entry.kind
    for field, wanted in promised.items():
        if wanted is not None and manifest[field] != wanted:
            raise DatasetCorrupt(MANIFEST, f"{field} {wanted} (rules)", str(manifest[field]), fix)
    listed = {name: File(file["bytes"], file["sha256"]) for name, file in sorted(manifest["files"].items())}
    ruled = {} if custom else {name: file for name, file in entry.files.items() if file.sha256}
    return listed | ruled
