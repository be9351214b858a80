"""A folder of images that a site already has: verified where it lies, read-only, and never copied.

What is written under the data root are its lists, a manifest and links to its ``train`` and ``val``. Every
file is read, hashed and decoded once, on all cores. Interrupted, the next attempt goes on: what was done is
in a journal, and counts as long as size and times of the file stay.
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
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, storage
from suite.datasets.image_folder import SPLITS
from suite.datasets.pixels import list_of
from suite.datasets.prepare import CUSTOM, STAMP, building, write_manifest
from suite.datasets.verify import Progress, parallel, status, write_stamp

_SUFFIXES = (".jpeg", ".jpg", ".png")
_MEND = "Fix the folder, and run the same command again: it goes on from there."


def take_folder(
    entry: CatalogueEntry, source: Path, root: Path, progress: Progress | None, own: bool
) -> None:
    """Verify the images in ``source`` and make them the dataset ``root/entry.name``.

    ``source`` holds ``train`` and ``val`` with a folder for each class. Without ``own`` there must be as many
    classes and images as the rules say. Raises DatasetMissing, DatasetCorrupt, StorageError.
    """
    source = source.resolve()
    names = scan(source)
    _check_counts(entry, source, names, own)
    with storage(root):
        root.mkdir(parents=True, exist_ok=True)
    every = [name for split in SPLITS for name in names[split]]
    journal = root / f".{entry.name}.verifying"
    checked = verify_files(source, every, journal, progress, str(source))
    lists = {
        f"{split}.txt": list_of((name, checked[name].digest) for name in names[split]) for split in SPLITS
    }
    with storage(root), building(entry.name, root) as folder:
        for name, content in lists.items():
            (folder / name).write_bytes(content)
        for split in SPLITS:
            (folder / split).symlink_to(source / split)
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in lists.items()}
        write_manifest(entry, folder, checksums, {"in_place": True}, CUSTOM if own else entry.kind)
        seen = {name: status(folder / name) for name in lists}
        seen |= {name: checked[name].status for name in every}
        write_stamp(folder / STAMP, digest_of(checksums), seen)
    with suppress(FileNotFoundError):
        journal.unlink()


def scan(source: Path) -> dict[str, list[str]]:
    """The images of each split, ``split/class/file``, sorted by class and name; other files are left out."""
    found = {}
    for split in SPLITS:
        folder = source / split
        if not folder.is_dir():
            raise DatasetMissing(f"{source}: expected a folder {split}, with one for each class; found none.")
        with storage(folder):
            classes = sorted(path.name for path in folder.iterdir() if _counts(path) and path.is_dir())
            if not classes:
                raise DatasetCorrupt(str(folder), "a folder for each class", "none", _MEND)
            found[split] = [name for group in classes for name in _files(folder / group, f"{split}/{group}")]
    train, val = ({name.split("/")[1] for name in found[split]} for split in SPLITS)
    if train != val:
        at = min(train ^ val)
        lacking = "val" if at in train else "train"
        raise DatasetCorrupt(str(source / lacking / at), "the classes of train and val alike", "none", _MEND)
    return found


def _counts(path: Path) -> bool:
    return not path.name.startswith(".")


def _files(folder: Path, prefix: str) -> list[str]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.lower().endswith(_SUFFIXES))
    names = [name for name in names if not name.startswith(".")]
    if not names:
        raise DatasetCorrupt(str(folder), "images (.JPEG, .jpg, .png)", "none", _MEND)
    if strange := next((name for name in names if not name.isprintable()), None):
        raise DatasetCorrupt(str(folder), "names of printable characters", repr(strange), _MEND)
    return [f"{prefix}/{name}" for name in names]


def _check_counts(entry: CatalogueEntry, source: Path, names: Mapping[str, Sequence[str]], own: bool) -> None:
    wanted = entry.images
    if wanted is None:
        raise ValueError(f"{entry.name} is no dataset of images")
    classes = len({name.split("/")[1] for name in names["train"]})
    found = f"{classes} classes, {len(names['train'])} and {len(names['val'])} images"
    if own:
        if not 2 <= classes <= wanted.classes:
            raise DatasetCorrupt(str(source), f"2 to {wanted.classes} classes", found, _MEND)
        return
    expected = f"{wanted.classes} classes, {wanted.train} and {wanted.val} images"
    if found != expected:
        fix = f"{_MEND} Images of your own are taken with CUSTOM=1, for open runs."
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
    """Each image of ``names`` in ``source``, from the journal where it knows the file as it is.

    ``of`` says in one line what the journal is of: one of anything else counts for nothing. With ``sizes``
    (width, height) an image must have its own. Raises DatasetCorrupt, StorageError.
    """
    with storage(journal):
        known = _read(journal, of)
        with journal.open("w", encoding="utf-8") as stream:  # anew: a line that was cut off is left behind
            stream.write(f"{of}\n")
            stream.writelines(checked.line(name) for name, checked in known.items())

    def check(name: str) -> tuple[str, CheckedFile]:
        before = known.get(name)
        with storage(source / name):
            try:
                now = status(source / name)
            except FileNotFoundError:
                raise DatasetCorrupt(str(source / name), "an image", "no such file", _MEND) from None
            if before is not None and before.status == now:
                return name, before
            return name, CheckedFile(_digest(source / name, *([sizes[name]] if sizes else [])), now)

    result: dict[str, CheckedFile] = {}
    with storage(journal), journal.open("a", encoding="utf-8") as stream:
        for done, (name, checked) in enumerate(parallel(check, names), 1):
            if known.get(name) is not checked:
                stream.write(checked.line(name))
            result[name] = checked
            if progress:
                progress(f"verifying the images of {source.name}", done, len(names))
    return result


def _read(journal: Path, of: str) -> dict[str, CheckedFile]:
    """What the journal says of files; nothing where it is of another folder."""
    try:
        lines = journal.read_text("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return {}
    if lines[0] != of:
        return {}
    return dict(_parsed(lines[1:-1]))  # after the last line break comes nothing, or what was cut off


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
            image.draft("RGB", (1, 1))  # a JPEG decodes at an eighth of its size: all of it is still read
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DatasetCorrupt(str(path), "a whole image", describe_error(error), _MEND) from error
    if size is not None and size != found:
        expected = f"{size[0]}x{size[1]} pixels as annotated"
        raise DatasetCorrupt(str(path), expected, f"{found[0]}x{found[1]}", _MEND)
    return hashlib.sha256(content).hexdigest()
