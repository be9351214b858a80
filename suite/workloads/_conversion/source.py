"""The images to convert: the files that the lists of a dataset name, in the order of the lists."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from suite.common.pixels import pixels_digest
from suite.contract import BadData
from suite.workloads.storage import SPLITS, read_list


class SourceImage(NamedTuple):
    """One image as every storage format stores it: the unchanged bytes of its file."""

    position: int  # in its split
    label: int  # from 0
    name: str  # split/class/file
    content: bytes


class SourceImages:
    """A folder with ``train.txt`` and ``val.txt``, whose lines are ``<sha256>  <split>/<class>/<file>``.

    A class is the index of its folder in the sorted names. BadData names the broken list, line or file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = {split: _rows(folder, split) for split in SPLITS}
        known = sorted({name.split("/")[1] for _, name in self._rows["train"]})
        self._labels = {group: at for at, group in enumerate(known)}
        for _, name in self._rows["val"]:
            if name.split("/")[1] not in self._labels:
                raise BadData(f"{name}: expected a class that train has too; prepare the dataset again")

    @property
    def images(self) -> dict[str, int]:
        """The number of images by split."""
        return {split: len(rows) for split, rows in self._rows.items()}

    def read(self, split: str, position: int) -> SourceImage:
        """Image ``position`` of ``split``, not yet verified."""
        name = self._rows[split][position][1]
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise BadData(f"{name}: expected an image, found no such file") from None
        return SourceImage(position, self._labels[name.split("/")[1]], name, content)

    def sizes(self, split: str, first: int, count: int) -> list[int]:
        """File sizes in bytes of ``count`` images from ``first`` on."""
        names = [name for _, name in self._rows[split][first : first + count]]
        try:
            return [(self._folder / name).stat().st_size for name in names]
        except FileNotFoundError as error:
            name = Path(str(error.filename)).relative_to(self._folder)
            raise BadData(f"{name}: expected an image, found no such file") from None

    def verify(self, split: str, position: int, content: bytes) -> str:
        """The digest of the pixels in ``content``; BadData unless ``content`` matches the list's digest.

        A list holds digests of the files' bytes, or of their pixels where the bytes depend on the build of
        the encoder. Both are accepted: no content has another's digest.
        """
        digest, name = self._rows[split][position]
        pixels = pixels_digest(content, name)
        if digest not in (pixels, found := hashlib.sha256(content).hexdigest()):
            raise BadData(
                f"{name}: expected the image with the digest {digest}, found {found}; "
                "prepare the dataset again"
            )
        return pixels


def _rows(folder: Path, split: str) -> list[tuple[str, str]]:
    rows = read_list(folder, split)
    if not rows:
        raise BadData(f"{split}.txt: expected images, found an empty list; prepare the dataset again")
    return rows
