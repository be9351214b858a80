"""COCO's annotations as arrays: read in a moment, where parsing 450 MB of JSON takes a worker half a minute.

Beside the annotations of a large dataset lies ``index/`` with ``<split>.npz``, derived from them alone. The
host makes it when the dataset is prepared; a folder without one is parsed, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from suite.contract import BadData
from suite.workloads import derived
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.coco import Picture, read_instances

FORMAT = "coco-index/1"
TRAIN, VAL = "train2017", "val2017"
SPLITS = (TRAIN, VAL)


def file_of(split: str) -> str:
    """The file of a split's annotations, within the dataset."""
    return f"annotations/instances_{split}.json"


def pictures(folder: Path, split: str, classes: int) -> list[Picture]:
    """The images of ``split`` with their objects, by number: of the index, else parsed. BadData."""
    index = folder / derived.FOLDER
    if (index / derived.MANIFEST).is_file():
        return _read(index / f"{split}.npz")
    return read_instances(folder / file_of(split), classes).pictures


def write(folder: Path, target: Path, digest: str, told: Callable[[int, int], None]) -> None:
    """Write the index of the annotations in ``folder`` to the existing folder ``target``.

    ``digest`` is the dataset's, for :func:`current`; ``told`` gets how many files of how many are done.
    BadData where the annotations are not as COCO's.
    """
    classes = spec.dimensions("reference", spec.VARIANTS["reference"][0]).classes
    for done, split in enumerate(SPLITS):
        told(done, len(SPLITS))
        _write(target / f"{split}.npz", read_instances(folder / file_of(split), classes).pictures)
    derived.seal(target, FORMAT, digest)


def current(index: Path, digest: str) -> bool:
    """Whether the folder ``index`` holds a whole index of the dataset of this digest, in this format."""
    return derived.current(index, FORMAT, digest)


def _write(path: Path, found: Sequence[Picture]) -> None:
    counts = np.array([len(picture.labels) for picture in found], np.int64)
    np.savez(
        path,
        numbers=np.array([picture.number for picture in found], np.int64),
        sizes=np.array([(picture.height, picture.width) for picture in found], np.int32),
        files=np.array([picture.file.encode() for picture in found]),
        starts=np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
        boxes=np.concatenate([picture.boxes for picture in found]),
        labels=np.concatenate([picture.labels for picture in found]),
    )


def _read(path: Path) -> list[Picture]:
    try:
        with np.load(path) as stored:
            numbers, sizes, files = (stored[name].tolist() for name in ("numbers", "sizes", "files"))
            starts, boxes, labels = stored["starts"].tolist(), stored["boxes"], stored["labels"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        fix = "remove the folder index of the dataset: the next run makes it again"
        raise BadData(f"index/{path.name}: expected an index, found {error!r}; {fix}") from error
    return [
        Picture(number, file.decode(), size[0], size[1], boxes[start:end], labels[start:end])
        for number, size, file, start, end in zip(numbers, sizes, files, starts[:-1], starts[1:], strict=True)
    ]
