"""Datasets of image files: ``train/<class>/*.JPEG`` and ``val/<class>/*.JPEG``, with a list of each.

A list, ``train.txt`` or ``val.txt``, has a line ``<sha256>  <file>`` for each image, as ``sha256sum`` writes
them, sorted by class and name; a class is the index of its folder in sorted order. The lists are the
dataset's files in the rules and the manifest, so that a digest of digests identifies the images. The worker
reads them as well, so that no run has to list a million files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from suite.contract import BadData
from suite.datasets.catalogue import File, Images
from suite.datasets.errors import DatasetCorrupt
from suite.datasets.pixels import pixels_digest
from suite.datasets.verify import Hasher, sha256_file

SPLITS = ("train", "val")
_LINE = re.compile(r"([0-9a-f]{64})  ([^/]+/(?:[^/]+/)?[^/]+)")


def splits_of(names: Iterable[str]) -> tuple[str, ...]:
    """The splits that have a list among the files ``names`` of a dataset, such as ``train`` for train.txt."""
    return tuple(sorted(name.removesuffix(".txt") for name in names if name.endswith(".txt")))


def listed(folder: Path, fix: str, splits: Sequence[str] = SPLITS) -> dict[str, File]:
    """Every image that the lists of ``folder`` name, with its SHA-256; DatasetCorrupt names a bad line."""
    found: dict[str, File] = {}
    for split in splits:
        path = folder / f"{split}.txt"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            match = _LINE.fullmatch(line)
            if match is None or not match[2].startswith(f"{split}/") or match[2] in found:
                where = f"{path} line {number}"
                raise DatasetCorrupt(where, "a digest and a file not listed before", repr(line[:120]), fix)
            found[match[2]] = File(None, match[1])
        if not any(name.startswith(f"{split}/") for name in reversed(found)):
            raise DatasetCorrupt(str(path), "images", "an empty list", fix)
    return found


def hasher(images: Images | None) -> Hasher:
    """The function that computes the digests of the lists: of pixels or of bytes."""
    return _hash_pixels if images is not None and images.identity == "pixels" else sha256_file


def _hash_pixels(path: Path, name: str) -> str:
    if "/" not in name or name.endswith(".json"):  # a list, or annotations: hashed by its bytes
        return sha256_file(path)
    try:
        return pixels_digest(path.read_bytes(), name)
    except BadData as error:
        fix = "Remove the dataset's folder: the next run generates it again."
        found = str(error).partition(", found ")[2]
        raise DatasetCorrupt(str(path), "a whole image", found, fix) from error
