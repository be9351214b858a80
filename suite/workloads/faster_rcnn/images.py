"""Images and objects read from disk: COCO's folders of JPEG files and their annotations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.image_reader import Item, Reader, Request, View, open_batches, open_reader, stored_bytes
from suite.common.stream import Stream
from suite.contract import WARMUP_STEPS, BadData, Job
from suite.workloads.faster_rcnn import index, spec
from suite.workloads.faster_rcnn.coco import AnnotatedImage
from suite.workloads.faster_rcnn.index import TRAIN, VAL
from suite.workloads.faster_rcnn.tables import turns

Arrays = dict[str, NDArray[Any]]
ShapedBatches = list[tuple[tuple[int, int], list[int]]]  # of each batch: shape, and positions of its images

EVALUATION_IMAGES = 20
_RED, _GREEN, _BLUE = (round(255 * float(part)) for part in spec.MEAN)
FILL = (_RED, _GREEN, _BLUE)  # padding: about zero after normalisation


class SplitImages:
    """The images of one split, padded at the right and the bottom to the shape of their batch.

    See :class:`suite.common.image_reader.Images`. An item's sample is an index of ``images``.
    """

    fill = FILL

    def __init__(self, folder: Path, split: str, images: list[AnnotatedImage], seed: int, dims: Any) -> None:
        self._folder, self._images, self._seed, self._dims = folder / split, images, seed, dims

    def content(self, item: Item) -> bytes:
        """See :class:`suite.common.image_reader.Images`."""
        try:
            return Path(self.file(item)).read_bytes()
        except FileNotFoundError:
            raise BadData(f"{self.name(item)}: expected an image, found no such file") from None

    def file(self, item: Item) -> str:
        """See :class:`suite.common.image_reader.Images`."""
        return f"{self._folder}/{self._images[item.sample].file}"

    def name(self, item: Item) -> str:
        """See :class:`suite.common.image_reader.Images`."""
        return f"{item.split}/{self._images[item.sample].file}"

    def view(self, item: Item, width: int, height: int) -> View:
        """The whole image, resized to fit the batch's shape, mirrored at random in training."""
        image = self._images[item.sample]
        if (height, width) != (image.height, image.width):
            raise BadData(
                f"{self.name(item)}: expected {image.width}x{image.height} as in its annotations, "
                f"found {width}x{height}"
            )
        high, wide = spec.resized(self._dims, height, width)
        return View((0, 0, width, height), (wide, high), (0, 0), self.flipped(item))

    def flipped(self, item: Item) -> bool:
        """Whether the image and its boxes are mirrored."""
        if item.epoch is None:
            return False
        number = self._images[item.sample].number
        return bool(Stream("flip", spec.NAME, self._seed, item.epoch, number).integers(2, 1)[0])


class Images:
    """Batches of images of one orientation: all images of a global batch are padded to the same shape.

    Training reads the training images that show an object, in an order given by seed and epoch, half of them
    mirrored. Inference reads the validation images in their order, then in random orders: equal batches would
    have equal outputs, as if those were stored.
    """

    def __init__(self, job: Job) -> None:
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._folder, self._seed = Path(job.data_dir), job.seed
        self._size, self._rows = job.global_batch, job.rows
        self._training = job.key.phase == "train"
        self._steps, self._cold = job.steps, job.key.cache == "cold"
        self._split = TRAIN if self._training else VAL
        images = self._read(self._split)
        self._images = [image for image in images if len(image.labels)] if self._training else images
        self.steps_per_epoch = len(self._batches(0))
        if not self.steps_per_epoch:
            raise BadData(
                f"{self._split}: expected images for a global batch of {self._size}, found {len(images)}"
            )
        self._epoch = lru_cache(maxsize=3)(self._batches)  # a reader may be an epoch ahead of the steps
        self._split_images = SplitImages(self._folder, self._split, self._images, self._seed, self._dims)
        self._ahead = open_batches(job, self._split_images, self._request)
        # A separate reader, because the validation has other images; made at its first use.
        self._validation = cache(lambda: self._open_validation(job))

    def _open_validation(self, job: Job) -> tuple[list[AnnotatedImage], Reader]:
        images = self._read(VAL)
        return images, open_reader(job, SplitImages(self._folder, VAL, images, self._seed, self._dims))

    def _read(self, split: str) -> list[AnnotatedImage]:
        return index.images(self._folder, split, self._dims.classes)

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`. Incomplete global batches are dropped."""
        return {"images": self._ahead.of(step), **self._objects(self._request(step), (self._seed, step))}

    def stored_bytes(self, step: int) -> int:
        """See :class:`suite.contract.ImageData`."""
        return stored_bytes(self._split_images, self._request(step))

    def first_of_each_shape(self) -> list[int]:
        """See :class:`suite.contract.ShapedData`.

        With a cold cache those of a window with several shapes are close to the end of an epoch, where a
        shorter window reads no files; the batches that a reader reads ahead of them are of this epoch too.
        """
        first: dict[tuple[int, int], int] = {}
        for step in range(min(self._steps, self.steps_per_epoch)):
            first.setdefault(self._request(step).shape, step)
        if self._cold and len(first) > 1:
            ahead = self.steps_per_epoch - WARMUP_STEPS
            first.update((self._request(step).shape, step) for step in range(ahead))
        return list(first.values())

    def _request(self, step: int) -> Request:
        epoch, at = divmod(step, self.steps_per_epoch)
        shape, samples = self._epoch(epoch)[at]
        drawn = epoch if self._training else None
        return Request(tuple(Item(self._split, sample, drawn) for sample in samples[self._rows]), shape)

    def _batches(self, epoch: int) -> ShapedBatches:
        """The global batches of one epoch: the full ones of each orientation, shuffled in training."""
        images = self._images
        if self._training or epoch:
            order = Stream("order", spec.NAME, self._seed, epoch).permutation(len(images)).tolist()
        else:
            order = list(range(len(images)))
        groups = self._cut(images, order, self._size)
        full = [part for group in groups for part in group if len(part[1]) == self._size]
        if not self._training:
            return full
        mixed = Stream("batches", spec.NAME, self._seed, epoch).permutation(len(full))
        return [full[int(index)] for index in mixed]

    def _cut(self, images: list[AnnotatedImage], order: list[int], size: int) -> list[ShapedBatches]:
        """Batches of ``size`` for each shape; the last batch of a shape may be smaller."""
        by_shape: list[ShapedBatches] = []
        for shape in self._dims.shapes:
            group = [index for index in order if self._shape(images[index]) == shape]
            by_shape.append([(shape, group[at : at + size]) for at in range(0, len(group), size)])
        return by_shape

    def _shape(self, image: AnnotatedImage) -> tuple[int, int]:
        """The batch shape for ``image``: landscape (squares too) or portrait."""
        return self._dims.shapes[0 if image.width >= image.height else -1]

    def _objects(self, request: Request, key: tuple[int, ...]) -> Arrays:
        """All arrays of a batch except the images."""
        count, most = len(request.items), self._dims.objects
        arrays: Arrays = {
            "boxes": np.zeros((count, most, 4), np.float32),
            "labels": np.zeros((count, most), np.int32),
            "sizes": np.zeros((count, 2), np.float32),
            "turns": turns(self._dims, *request.shape, count, *key, first=self._rows.start),
        }
        for row, item in enumerate(request.items):
            image = self._images[item.sample]
            height, width = spec.resized(self._dims, image.height, image.width)
            arrays["sizes"][row] = height, width
            boxes, have = image.boxes[:most].copy(), len(image.labels[:most])
            if self._split_images.flipped(item):
                boxes[:, [0, 2]] = image.width - boxes[:, [2, 0]]
            ratio = np.array((width / image.width, height / image.height))
            arrays["boxes"][row, :have] = boxes * np.tile(ratio, 2)
            arrays["labels"][row, :have] = image.labels[:most]
        return arrays

    def evaluation(self) -> Iterator[Arrays]:
        """Every validation image once: ``images``, ``sizes`` and ``image``, their numbers, int64 [n]."""
        annotated, reader = self._validation()
        for batches in self._cut(annotated, list(range(len(annotated))), EVALUATION_IMAGES):
            requests = [
                Request(tuple(Item(VAL, sample, None) for sample in samples), shape)
                for shape, samples in batches
            ]
            for request, pixels in zip(requests, reader.run(requests), strict=True):
                images = [annotated[item.sample] for item in request.items]
                sizes = [spec.resized(self._dims, image.height, image.width) for image in images]
                numbers = [image.number for image in images]
                yield {
                    "images": pixels,
                    "sizes": np.array(sizes, np.float32),
                    "image": np.array(numbers, np.int64),
                }
