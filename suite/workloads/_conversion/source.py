"""The pictures to convert: the files that the lists of a dataset name, in the order of the lists."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from suite.common.pixels import pixels_digest
from suite.contract import BadData
from suite.workloads.storage import SPLITS, read_list


class Sample(NamedTuple):
    """One picture as every storage format keeps it: the file's own bytes are never encoded again."""

    place: int  # in its split
    label: int  # from 0
    name: str  # split/class/file
    content: bytes


class Source:
    """A folder with ``train.txt`` and ``val.txt``, whose lines are ``<sha256>  <split>/<class>/<file>``.

    A class is the place of its folder in the order of names. BadData names what is not as it should be.
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
    def pictures(self) -> dict[str, int]:
        """How many pictures each split has."""
        return {split: len(rows) for split, rows in self._rows.items()}

    def read(self, split: str, place: int) -> Sample:
        """Picture ``place`` of ``split``, not yet looked at."""
        name = self._rows[split][place][1]
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise BadData(f"{name}: expected an image, found no such file") from None
        return Sample(place, self._labels[name.split("/")[1]], name, content)

    def sizes(self, split: str, first: int, count: int) -> list[int]:
        """Bytes of ``count`` pictures from ``first`` on."""
        names = [name for _, name in self._rows[split][first : first + count]]
        try:
            return [(self._folder / name).stat().st_size for name in names]
        except FileNotFoundError as error:
            name = Path(str(error.filename)).relative_to(self._folder)
            raise BadData(f"{name}: expected an image, found no such file") from None

    def verify(self, split: str, place: int, content: bytes) -> str:
        """The digest of the pixels in ``content``; BadData unless it is the picture that the list promises.

        A list has digests of the files' bytes, or of their pixels where the encoder's build decides on the
        bytes: no content has the one digest and is meant by the other.
        """
        digest, name = self._rows[split][place]
        pixels = pixels_digest(content, name)
        if digest not in (pixels, found := hashlib.sha256(content).hexdigest()):
            wanted = f"expected the picture with the digest {digest}"
            raise BadData(f"{name}: {wanted}, found {found}; prepare the dataset again")
        return pixels


def _rows(folder: Path, split: str) -> list[tuple[str, str]]:
    rows = read_list(folder, split)
    if not rows:
        raise BadData(f"{split}.txt: expected images, found an empty list; prepare the dataset again")
    return rows
