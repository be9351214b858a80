"""The images to convert: the files that the lists of a dataset name, in the order of the lists."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from suite.common.decoder import decode
from suite.common.pixels import pixels_digest
from suite.contract import BadData
from suite.workloads.storage import JPEG_QUALITY, SPLITS, Encoding, read_list


class SourceImage(NamedTuple):
    """One image as every storage format stores it: the unchanged bytes of its file, or encoded again."""

    position: int  # in its split
    label: int  # from 0
    name: str  # split/class/file
    content: bytes
    raw: int | None = None  # pixels of each side where ``content`` is rows of RGB and no image file


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


def encoded_again(image: SourceImage, encoding: Encoding) -> SourceImage:
    """``image`` resized to a square, bilinearly with antialiasing and without regard to its proportions.

    So caffe's ``convert_imageset --resize_height --resize_width`` does. BadData for a broken image.
    """
    side = (encoding.size, encoding.size)
    pixels = decode(image.content, image.name).resize(side, Image.Resampling.BILINEAR)
    if encoding.kind == "raw":
        return image._replace(content=pixels.tobytes(), raw=encoding.size)
    out = io.BytesIO()
    pixels.save(out, "JPEG", quality=JPEG_QUALITY)
    return image._replace(content=out.getvalue())


def stored_digest(image: SourceImage) -> str:
    """The digest of the pixels of ``image``, as :func:`suite.common.pixels.pixels_digest` defines it."""
    if image.raw is None:
        return pixels_digest(image.content, image.name)
    return hashlib.sha256(f"{image.raw} {image.raw}\n".encode() + image.content).hexdigest()


def _rows(folder: Path, split: str) -> list[tuple[str, str]]:
    rows = read_list(folder, split)
    if not rows:
        raise BadData(f"{split}.txt: expected images, found an empty list; prepare the dataset again")
    return rows
