"""COCO 2017: a folder of the site, which is linked, or the publisher's three archives, unpacked once.

A folder has ``annotations/instances_{train,val}2017.json`` and the images that they name in ``train2017``
and ``val2017``; other files are ignored. The suite first reads the annotations, and reads, hashes and decodes
every image, which must have the annotated size.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from suite.contract import BadData
from suite.datasets.catalogue import CatalogueEntry, DownloadSource, Unpacked, digest_of
from suite.datasets.coco_weights import take_weights
from suite.datasets.download import DOWNLOADS, discard, download, exclusive, require_space
from suite.datasets.errors import DatasetCorrupt, DatasetError, DatasetMissing, storage_errors
from suite.datasets.install import ARCHIVE_ERRORS, verify_archive
from suite.datasets.pixels import list_of
from suite.datasets.prepare import CUSTOM, STAMP, PreparedDataset, building, check, derive, write_manifest
from suite.datasets.site_folder import CheckedFile, verify_files
from suite.datasets.verify import Progress, sha256_file, status, write_stamp
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.coco import AnnotatedImage, Instances, read_instances
from suite.workloads.faster_rcnn.index import SPLITS, file_of

FOLDERS = ("annotations", *SPLITS)
_STATE = ".state"  # of a preparation in progress: the unpacked and verified files
_FIX = "Fix the folder, and run the same command again: it continues from there."
_OTHERS = "CUSTOM=1 takes a custom dataset in this format, for open runs."


def obtain(
    entry: CatalogueEntry,
    root: Path,
    progress: Progress | None = None,
    copy: Path | None = None,
    custom: bool = False,
) -> PreparedDataset:
    """The dataset under ``root``, verified: from ``copy``, else from the publisher.

    ``copy`` is a folder with the images and annotations, which are linked and only read, or with the three
    archives. With ``custom`` it contains a custom dataset. Raises ``DatasetMissing``, ``DatasetCorrupt``,
    ``FetchFailed``, ``NoSpace``, ``ReadOnly``.
    """
    if copy is not None and (custom or (copy / file_of(SPLITS[0])).is_file()):
        take_folder(entry, copy, root, progress, custom)
    else:
        _unpack(entry, root, progress, copy)
    prepared = check(entry, root / entry.name, progress, verify=False)
    prepared = derive(entry, prepared, progress)
    take_weights(entry, prepared, progress, copy)
    return prepared


# A folder


def take_folder(
    entry: CatalogueEntry, source: Path, root: Path, progress: Progress | None, custom: bool
) -> None:
    """Verify ``source`` and make it the dataset ``root/entry.name`` by links. See :func:`obtain`."""
    source = source.resolve()
    found = scan(entry, source, custom)
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
    journal = root / f".{entry.name}.verifying"
    checked = _verified(source, found, journal, progress)
    with storage_errors(root), building(entry.name, root) as folder:
        for name in FOLDERS:
            (folder / name).symlink_to(source / name)
        _describe(entry, folder, found, checked, custom, in_place=True)
    with suppress(FileNotFoundError):
        journal.unlink()


def scan(entry: CatalogueEntry, source: Path, custom: bool) -> dict[str, Instances]:
    """The annotations of each split of ``source``; without ``custom`` their counts must be the rules'."""
    for name in FOLDERS:
        if not (source / name).is_dir():
            raise DatasetMissing(f"{source}: expected folders {', '.join(FOLDERS)}; found no {name}.")
    classes = spec.dimensions("reference", spec.VARIANTS["reference"][0]).classes
    found = {}
    for split in SPLITS:
        path = source / file_of(split)
        try:
            with storage_errors(path):
                found[split] = read_instances(path, classes, empty=not custom)
        except BadData as error:
            raise DatasetError(f"{path.parent}/{error}. {_FIX}") from error
    if not custom:
        _check_counts(entry, source, found)
    elif not any(len(image.labels) for image in found[SPLITS[0]].images):
        raise DatasetCorrupt(str(source / file_of(SPLITS[0])), "objects to train on", "none", _FIX)
    return found


def _check_counts(entry: CatalogueEntry, source: Path, found: Mapping[str, Instances]) -> None:
    wanted = entry.images
    if wanted is None or wanted.annotations is None:
        raise ValueError(f"{entry.name} is no dataset of images with annotations")
    rows = zip(SPLITS, (wanted.train, wanted.val), wanted.annotations, strict=True)
    for split, images, objects in rows:
        have = found[split]
        expected = f"{images} images, {objects} annotations, {wanted.classes} categories"
        seen = f"{len(have.images)} images, {have.annotations} annotations, {len(have.categories)} categories"
        if seen != expected:
            raise DatasetCorrupt(str(source / file_of(split)), expected, seen, f"{_FIX} {_OTHERS}")


def _names(found: Mapping[str, Instances]) -> dict[str, AnnotatedImage]:
    """Every image by its name in the dataset, sorted within its split."""
    return {
        f"{split}/{image.file}": image
        for split in SPLITS
        for image in sorted(found[split].images, key=lambda image: image.file)
    }


def _verified(
    source: Path, found: Mapping[str, Instances], journal: Path, progress: Progress | None
) -> dict[str, CheckedFile]:
    """Digest and status of every image; ``journal`` keeps what was done, for these annotations."""
    images = _names(found)
    if len(images) != sum(len(one.images) for one in found.values()):
        raise DatasetCorrupt(str(source), "a file of its own for each image", "two with one", _FIX)
    with storage_errors(source):
        digests = " ".join(sha256_file(source / file_of(split)) for split in SPLITS)
    sizes = {name: (image.width, image.height) for name, image in images.items()}
    return verify_files(source, tuple(images), journal, progress, f"{source} {digests}", sizes)


def _describe(
    entry: CatalogueEntry,
    folder: Path,
    found: Mapping[str, Instances],
    checked: Mapping[str, CheckedFile],
    custom: bool,
    in_place: bool,
) -> None:
    """Write the lists, the manifest and the stamp of the verified files to ``folder``."""
    checksums, seen = {}, {}
    for split in SPLITS:
        rows = sorted((name, one.digest) for name, one in checked.items() if name.startswith(f"{split}/"))
        content = list_of(rows)
        (folder / f"{split}.txt").write_bytes(content)
        checksums[f"{split}.txt"] = hashlib.sha256(content).hexdigest()
        checksums[file_of(split)] = sha256_file(folder / file_of(split))
    left_out = {
        split: {"crowds": found[split].crowds, "boxes without an area": found[split].empty}
        for split in SPLITS
    }
    parameters = {"in_place": in_place, "left_out": left_out}
    write_manifest(entry, folder, checksums, parameters, CUSTOM if custom else entry.kind)
    seen = {name: status(folder / name) for name in checksums}
    seen |= {name: one.status for name, one in checked.items()}
    write_stamp(folder / STAMP, digest_of(checksums), seen)


# Archives


def describe(entry: CatalogueEntry) -> list[str]:
    """The downloads and the disk that fetching takes, as lines to print before it starts."""
    if entry.unpacked is None:
        raise ValueError(f"{entry.name} has no archives")
    archives = entry.unpacked.archives
    total = sum(source.bytes for source in archives)
    addresses = ", ".join(source.url for source in archives)
    disk = f"about {entry.unpacked.bytes / 1e9:.0f} GB of disk at the peak"
    return [
        f"{len(archives)} archives, {total / 1e9:.1f} GB: {addresses}",
        f"unpacked and verified: {disk}; after an interruption the same command continues",
    ]


def _unpack(entry: CatalogueEntry, root: Path, progress: Progress | None, copy: Path | None) -> None:
    """The dataset from its archives, fetched or those of ``copy``; files unpacked before are kept."""
    if entry.unpacked is None:
        raise ValueError(f"{entry.name} has no archives")
    if copy is not None:
        _require_archives(entry.unpacked.archives, copy)
    making = root / f".{entry.name}.making"  # stays after an interruption
    with storage_errors(making):
        (making / _STATE).mkdir(parents=True, exist_ok=True)
        lock = (making / _STATE / "lock").open("w")
    with lock, exclusive(lock, making):
        _make(entry, entry.unpacked, making, progress, copy)


def _make(
    entry: CatalogueEntry, unpacked: Unpacked, making: Path, progress: Progress | None, copy: Path | None
) -> None:
    require_space(making.parent, unpacked.bytes - _had(unpacked, making, copy))
    wanted = {file_of(split) for split in SPLITS}
    found: dict[str, Instances] = {}
    for source in unpacked.archives:  # the annotations come first and list the expected images
        _take_archive(source, making, wanted, progress, copy)
        if not found:
            for name in FOLDERS:
                (making / name).mkdir(exist_ok=True)
            found = scan(entry, making, custom=False)
            wanted = set(_names(found))
    checked = _verified(making, found, making / _STATE / "verified", progress)
    with storage_errors(making):
        _describe(entry, making, found, checked, custom=False, in_place=False)
        shutil.rmtree(making / _STATE)
        making.rename(making.with_name(entry.name))


def _had(unpacked: Unpacked, making: Path, copy: Path | None) -> int:
    """Bytes that need no new space: unpacked or downloaded before, or archives of ``copy``."""
    done = [path for path in making.rglob("*") if path.is_file()]
    if copy is not None:
        return sum(path.stat().st_size for path in done) + sum(source.bytes for source in unpacked.archives)
    done += (making.parent / DOWNLOADS).glob("*.part")
    return sum(path.stat().st_size for path in done)


def _require_archives(archives: tuple[DownloadSource, ...], copy: Path) -> None:
    for source in archives:
        if not (copy / _name(source)).is_file():
            raise DatasetMissing(
                f"{copy}: expected folders {', '.join(FOLDERS)}, or the three archives; found no "
                f"{file_of(SPLITS[0])} and no {_name(source)}."
            )


def _name(source: DownloadSource) -> str:
    return source.url.rsplit("/", 1)[-1]


def _take_archive(
    source: DownloadSource, making: Path, wanted: set[str], progress: Progress | None, copy: Path | None
) -> None:
    """Unpack the wanted members of one archive, unless that was done; a fetched archive is then removed."""
    note = making / _STATE / _name(source)
    if note.exists():
        return
    if copy is None:
        archive = download(source, making.parent / DOWNLOADS, progress)
    else:
        archive = copy / _name(source)
        verify_archive(source, archive)
    members = sorted(name for name in wanted if name.startswith(f"{source.member}/"))
    try:
        with storage_errors(making), zipfile.ZipFile(archive) as zipped:
            for done, name in enumerate(members):
                if progress:
                    progress(f"unpacking {_name(source)}", done, len(members))
                _unpack_member(zipped, name, making / name)
    except ARCHIVE_ERRORS as error:
        fix = "Fetch the publisher's archive again."
        raise DatasetCorrupt(str(archive), f"an archive with {source.member}/", str(error), fix) from error
    with storage_errors(making):
        note.touch()
        if copy is None:
            discard(archive)


def _unpack_member(zipped: zipfile.ZipFile, name: str, target: Path) -> None:
    """Write one member to ``target``, by a rename, unless a file of its size is there."""
    size = zipped.getinfo(name).file_size
    if target.is_file() and target.stat().st_size == size:
        return
    target.parent.mkdir(exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    with zipped.open(name) as stream, part.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)  # zipfile compares the checksum at the end
    part.replace(target)
