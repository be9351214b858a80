"""The batches of Faster R-CNN: images and their objects read from disk, or one synthetic batch."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from suite.common.image_reader import reader_module
from suite.common.stream import Stream
from suite.contract import Data, Job
from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.images import Images
from suite.workloads.faster_rcnn.tables import turns
from suite.workloads.one_batch import OneBatch, random_bytes

Arrays = dict[str, NDArray[Any]]


def open_data(job: Job) -> Data:
    """The data of ``job``.

    Each step has ``images`` uint8 [batch, height, width, 3], ``boxes`` float32 [batch, objects, 4] (x1, y1,
    x2, y2 in pixels), ``labels`` int32 [batch, objects] (0: padding), ``sizes`` float32 [batch, 2] (height
    and width of the image without padding) and ``turns`` int32 [batch, 2] (the offsets at which the random
    sampling orders of anchors and of regions start, see :class:`tables.Tables`).
    """
    if job.key.data == "synthetic":
        return Synthetic(job)
    return Images(job)


def decoder(job: Job) -> str:
    """Name and version of the image decoder of ``job``; ImportError where it is not installed."""
    return cast("str", reader_module(job).DECODER)


class Synthetic(OneBatch):
    """One batch of random pixels with one to seven random boxes per image, the same for every seed."""

    objects = 7  # about the mean of COCO

    def __init__(self, job: Job) -> None:
        dims = spec.dimensions(job.key.scale, job.key.variant)
        count, first = job.key.batch, job.rows.start
        self._batch = random_batch(dims, count, self.objects, "synthetic", *job.salt, first=first)


def predictions(detections: NDArray[Any], numbers: NDArray[Any]) -> Arrays:
    """``boxes`` [n, k, 4], ``scores`` and ``labels`` [n, k] of ``detections`` [n, k, 6]; ``image``."""
    values = detections.astype(np.float32)
    labels = values[:, :, 5].astype(np.int32)
    return {"boxes": values[:, :, :4], "scores": values[:, :, 4], "labels": labels, "image": numbers}


def random_batch(dims: spec.Dimensions, count: int, objects: int, *key: str | int, first: int = 0) -> Arrays:
    """``count`` landscape images of random pixels, each with 1 to ``objects`` boxes of any class.

    They are the images from ``first`` on of the endless sequence of ``key``.
    """
    height, width = dims.shapes[0]
    high, wide = min(height, dims.short), min(width, dims.long)
    most = min(objects, dims.objects)
    boxes = np.zeros((count, dims.objects, 4), np.float32)
    labels = np.zeros((count, dims.objects), np.int32)
    for image in range(count):
        stream = Stream(*key, "boxes", high, wide, first + image)
        have = int(stream.integers(most, 1)[0]) + 1
        side = stream.unit(2 * have, 1).reshape(have, 2) * 0.4 + 0.1
        near = stream.unit(2 * have, 1 + 2 * have).reshape(have, 2) * (1 - side)
        corners = np.concatenate((near, near + side), axis=1) * (wide, high, wide, high)
        boxes[image, :have] = corners
        labels[image, :have] = 1 + stream.integers(dims.classes - 1, have, 1 + 4 * have)
    return {
        "images": random_bytes((count, height, width, 3), first, *key, "images", height, width),
        "boxes": boxes,
        "labels": labels,
        "sizes": np.full((count, 2), (high, wide), np.float32),
        "turns": turns(dims, height, width, count, *key, first=first),
    }
