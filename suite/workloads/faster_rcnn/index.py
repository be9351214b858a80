"""COCO's annotations as arrays, because parsing 450 MB of JSON takes a worker half a minute.

The folder ``index/`` of a large dataset holds ``<split>.npz``, derived from the annotations alone. The host
makes it when the dataset is prepared. Without an index the annotations are parsed, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from suite.contract import BadData
from suite.workloads import derived
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.coco import AnnotatedImage, read_instances

FORMAT = "coco-index/1"
TRAIN, VAL = "train2017", "val2017"
SPLITS = (TRAIN, VAL)


def file_of(split: str) -> str:
    """The file of a split's annotations, within the dataset."""
    return f"annotations/instances_{split}.json"


def images(folder: Path, split: str, classes: int) -> list[AnnotatedImage]:
    """The images of ``split`` with their objects, by number: from the index, else parsed; BadData."""
    index = folder / derived.FOLDER
    if (index / derived.MANIFEST).is_file():
        return _read(index / f"{split}.npz")
    return read_instances(folder / file_of(split), classes).images


def write(folder: Path, target: Path, digest: str, progress: Callable[[int, int], None]) -> None:
    """Write the index of the annotations in ``folder`` to the existing folder ``target``.

    ``digest`` is the dataset's, for :func:`current`; ``progress`` is called with files done and files in all.
    BadData for annotations in another format than COCO's.
    """
    classes = spec.dimensions("reference", spec.VARIANTS["reference"][0]).classes
    for done, split in enumerate(SPLITS):
        progress(done, len(SPLITS))
        _write(target / f"{split}.npz", read_instances(folder / file_of(split), classes).images)
    derived.seal(target, FORMAT, digest)


def current(index: Path, digest: str) -> bool:
    """Whether the folder ``index`` holds a complete index of the dataset with this digest."""
    return derived.current(index, FORMAT, digest)


def _write(path: Path, annotated: Sequence[AnnotatedImage]) -> None:
    counts = np.array([len(image.labels) for image in annotated], np.int64)
    np.savez(
        path,
        numbers=np.array([image.number for image in annotated], np.int64),
        sizes=np.array([(image.height, image.width) for image in annotated], np.int32),
        files=np.array([image.file.encode() for image in annotated]),
        starts=np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
        boxes=np.concatenate([image.boxes for image in annotated]),
        labels=np.concatenate([image.labels for image in annotated]),
    )


def _read(path: Path) -> list[AnnotatedImage]:
    try:
        with np.load(path) as stored:
            numbers, sizes, files = (stored[name].tolist() for name in ("numbers", "sizes", "files"))
            starts, boxes, labels = stored["starts"].tolist(), stored["boxes"], stored["labels"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        fix = "remove the folder index of the dataset: the next run makes it again"
        raise BadData(f"index/{path.name}: expected an index, found {error!r}; {fix}") from error
    return [
        AnnotatedImage(number, file.decode(), size[0], size[1], boxes[start:end], labels[start:end])
        for number, size, file, start, end in zip(numbers, sizes, files, starts[:-1], starts[1:], strict=True)
    ]
