"""A folder of images that a site already has: it is verified and linked, never written to and never copied.

The suite writes its lists, a manifest and links to its ``train`` and ``val`` under the data root. Every file
is read, hashed and decoded once, on all cores. An interrupted verification is resumed from a journal; its
entries are valid while size and times of the file do not change.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from suite.common.decoder import describe_error
from suite.datasets.catalogue import CatalogueEntry, digest_of
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, storage_errors
from suite.datasets.image_folder import SPLITS
from suite.datasets.pixels import list_of
from suite.datasets.prepare import CUSTOM, STAMP, building, write_manifest
from suite.datasets.verify import Progress, parallel, status, write_stamp

_SUFFIXES = (".jpeg", ".jpg", ".png")
_FIX = "Fix the folder, and run the same command again: it continues from there."


def take_folder(
    entry: CatalogueEntry, source: Path, root: Path, progress: Progress | None, custom: bool
) -> None:
    """Verify the images in ``source`` and make them the dataset ``root/entry.name``.

    ``source`` has ``train`` and ``val`` with a folder for each class. Without ``custom`` the numbers of
    classes and images must be the rules'. Raises DatasetMissing, DatasetCorrupt, StorageError.
    """
    source = source.resolve()
    names = scan(source)
    _check_counts(entry, source, names, custom)
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
    every = [name for split in SPLITS for name in names[split]]
    journal = root / f".{entry.name}.verifying"
    checked = verify_files(source, every, journal, progress, str(source))
    lists = {
        f"{split}.txt": list_of((name, checked[name].digest) for name in names[split]) for split in SPLITS
    }
    with storage_errors(root), building(entry.name, root) as folder:
        for name, content in lists.items():
            (folder / name).write_bytes(content)
        for split in SPLITS:
            (folder / split).symlink_to(source / split)
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in lists.items()}
        write_manifest(entry, folder, checksums, {"in_place": True}, CUSTOM if custom else entry.kind)
        seen = {name: status(folder / name) for name in lists}
        seen |= {name: checked[name].status for name in every}
        write_stamp(folder / STAMP, digest_of(checksums), seen)
    with suppress(FileNotFoundError):
        journal.unlink()


def scan(source: Path) -> dict[str, list[str]]:
    """The images of each split, ``split/class/file``, sorted by class and name; other files are ignored."""
    found = {}
    for split in SPLITS:
        folder = source / split
        if not folder.is_dir():
            raise DatasetMissing(f"{source}: expected a folder {split}, with one for each class; found none.")
        with storage_errors(folder):
            names = sorted(path.name for path in folder.iterdir() if path.is_dir())
            classes = [name for name in names if not name.startswith(".")]
            if not classes:
                raise DatasetCorrupt(str(folder), "a folder for each class", "none", _FIX)
            found[split] = [name for group in classes for name in _files(folder / group, f"{split}/{group}")]
    train, val = ({name.split("/")[1] for name in found[split]} for split in SPLITS)
    if train != val:
        at = min(train ^ val)
        lacking = "val" if at in train else "train"
        raise DatasetCorrupt(str(source / lacking / at), "equal classes in train and val", "none", _FIX)
    return found


def _files(folder: Path, prefix: str) -> list[str]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.lower().endswith(_SUFFIXES))
    names = [name for name in names if not name.startswith(".")]
    if not names:
        raise DatasetCorrupt(str(folder), "images (.JPEG, .jpg, .png)", "none", _FIX)
    if strange := next((name for name in names if not name.isprintable()), None):
        raise DatasetCorrupt(str(folder), "names of printable characters", repr(strange), _FIX)
    return [f"{prefix}/{name}" for name in names]


def _check_counts(
    entry: CatalogueEntry, source: Path, names: Mapping[str, Sequence[str]], custom: bool
) -> None:
    wanted = entry.images
    if wanted is None:
        raise ValueError(f"{entry.name} is no dataset of images")
    classes = len({name.split("/")[1] for name in names["train"]})
    found = f"{classes} classes, {len(names['train'])} and {len(names['val'])} images"
    if custom:
        if not 2 <= classes <= wanted.classes:
            raise DatasetCorrupt(str(source), f"2 to {wanted.classes} classes", found, _FIX)
        return
    expected = f"{wanted.classes} classes, {wanted.train} and {wanted.val} images"
    if found != expected:
        fix = f"{_FIX} CUSTOM=1 takes a custom dataset, for open runs."
        raise DatasetCorrupt(str(source), expected, found, fix)


# Verification


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """SHA-256 of a file, and :func:`suite.datasets.verify.status` of it when it was read."""

    digest: str
    status: list[int]

    def line(self, name: str) -> str:
        """The journal's line for the file ``name``."""
        return f"{self.digest} {' '.join(map(str, self.status))} {name}\n"


def verify_files(
    source: Path,
    names: Sequence[str],
    journal: Path,
    progress: Progress | None,
    of: str,
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, CheckedFile]:
    """Digest and status of each image of ``names`` in ``source``, from the journal for unchanged files.

    ``of`` identifies in one line the subject of the journal; a journal of another subject is ignored. With
    ``sizes`` (width, height by name) an image must have its size. Raises DatasetCorrupt, StorageError.
    """
    with storage_errors(journal):
        known = _read(journal, of)
        with journal.open("w", encoding="utf-8") as stream:  # rewritten, without an incomplete last line
            stream.write(f"{of}\n")
            stream.writelines(checked.line(name) for name, checked in known.items())

    def check(name: str) -> tuple[str, CheckedFile]:
        before = known.get(name)
        with storage_errors(source / name):
            try:
                now = status(source / name)
            except FileNotFoundError:
                raise DatasetCorrupt(str(source / name), "an image", "no such file", _FIX) from None
            if before is not None and before.status == now:
                return name, before
            return name, CheckedFile(_digest(source / name, *([sizes[name]] if sizes else [])), now)

    result: dict[str, CheckedFile] = {}
    with storage_errors(journal), journal.open("a", encoding="utf-8") as stream:
        for done, (name, checked) in enumerate(parallel(check, names), 1):
            if known.get(name) is not checked:
                stream.write(checked.line(name))
            result[name] = checked
            if progress:
                progress(f"verifying the images of {source.name}", done, len(names))
    return result


def _read(journal: Path, of: str) -> dict[str, CheckedFile]:
    """The journal's entries by file; empty where it has another subject."""
    try:
        lines = journal.read_text("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return {}
    if lines[0] != of:
        return {}
    return dict(_parsed(lines[1:-1]))  # the text after the last line break is empty or incomplete


def _parsed(lines: Sequence[str]) -> Iterator[tuple[str, CheckedFile]]:
    for line in lines:
        parts = line.split(" ", 4)
        if len(parts) == 5 and len(parts[0]) == 64 and all(part.isdigit() for part in parts[1:4]):
            yield parts[4], CheckedFile(parts[0], [int(part) for part in parts[1:4]])


def _digest(path: Path, size: tuple[int, int] | None = None) -> str:
    """SHA-256 of the file's bytes; DatasetCorrupt unless it decodes to the end and has the size, if given."""
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content)) as image:
            found = image.size
            image.draft("RGB", (1, 1))  # decodes a JPEG at an eighth of its size, but reads all of its bytes
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DatasetCorrupt(str(path), "a whole image", describe_error(error), _FIX) from error
    if size is not None and size != found:
        expected = f"{size[0]}x{size[1]} pixels as annotated"
        raise DatasetCorrupt(str(path), expected, f"{found[0]}x{found[1]}", _FIX)
    return hashlib.sha256(content).hexdigest()
