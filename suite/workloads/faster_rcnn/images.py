"""Images and objects read from disk: COCO's folders of JPEG files and their annotations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.image_reader import Item, Reader, Request, View, open_batches, open_reader
from suite.common.stream import Stream
from suite.contract import BadData, Job
from suite.workloads.faster_rcnn import index, spec
from suite.workloads.faster_rcnn.coco import Picture
from suite.workloads.faster_rcnn.index import TRAIN, VAL
from suite.workloads.faster_rcnn.tables import turns

Arrays = dict[str, NDArray[Any]]
Places = list[tuple[tuple[int, int], list[int]]]  # batches: shape, and places of its pictures

EVALUATION_IMAGES = 20
_RED, _GREEN, _BLUE = (round(255 * float(part)) for part in spec.MEAN)
FILL = (_RED, _GREEN, _BLUE)  # padding: about zero once normalised


class Photographs:
    """The images of one split, in which an item's sample is a place; each gets a border right and below.

    See :class:`suite.common.image_reader.Pictures`.
    """

    fill = FILL

    def __init__(self, folder: Path, split: str, pictures: list[Picture], seed: int, dims: Any) -> None:
        self._folder, self._pictures, self._seed, self._dims = folder / split, pictures, seed, dims

    def content(self, item: Item) -> bytes:
        """See :class:`suite.common.image_reader.Pictures`."""
        try:
            return Path(self.file(item)).read_bytes()
        except FileNotFoundError:
            raise BadData(f"{self.name(item)}: expected an image, found no such file") from None

    def file(self, item: Item) -> str:
        """See :class:`suite.common.image_reader.Pictures`."""
        return f"{self._folder}/{self._pictures[item.sample].file}"

    def name(self, item: Item) -> str:
        """See :class:`suite.common.image_reader.Pictures`."""
        return f"{item.split}/{self._pictures[item.sample].file}"

    def view(self, item: Item, width: int, height: int) -> View:
        """The whole image at the size of the batch, in training mirrored at random."""
        picture = self._pictures[item.sample]
        if (height, width) != (picture.height, picture.width):
            raise BadData(
                f"{self.name(item)}: expected {picture.width}x{picture.height} as its annotations have it, "
                f"found {width}x{height}"
            )
        high, wide = spec.resized(self._dims, height, width)
        return View((0, 0, width, height), (wide, high), (0, 0), self.flipped(item))

    def flipped(self, item: Item) -> bool:
        """Whether the image is mirrored, and its boxes with it."""
        if item.epoch is None:
            return False
        number = self._pictures[item.sample].number
        return bool(Stream("flip", spec.NAME, self._seed, item.epoch, number).integers(2, 1)[0])


class Images:
    """Batches of images of one orientation, in an order of seed and epoch; half of them mirrored.

    Images without an object are not trained on. Inference takes the validation set, in its order.
    """

    def __init__(self, job: Job) -> None:
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._folder, self._seed, self._size = Path(job.data_dir), job.seed, job.key.batch
        self._training = job.key.phase == "train"
        self._split = TRAIN if self._training else VAL
        found = self._read(self._split)
        self._pictures = [p for p in found if len(p.labels)] if self._training else found
        self.steps_per_epoch = len(self._batches(0))
        if not self.steps_per_epoch:
            raise BadData(f"{self._split}: expected images for a batch of {self._size}, found {len(found)}")
        self._epoch = lru_cache(maxsize=3)(self._batches)  # readers ahead of the steps may be in the next
        self._photographs = Photographs(self._folder, self._split, self._pictures, self._seed, self._dims)
        self._ahead = open_batches(job, self._photographs, self._request)
        # A reader of its own, since others are in it; made when first needed, and kept.
        self._validation = cache(lambda: self._open_validation(job))

    def _open_validation(self, job: Job) -> tuple[list[Picture], Reader]:
        pictures = self._read(VAL)
        return pictures, open_reader(job, Photographs(self._folder, VAL, pictures, self._seed, self._dims))

    def _read(self, split: str) -> list[Picture]:
        return index.pictures(self._folder, split, self._dims.classes)

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.contract.Data`; incomplete batches are dropped."""
        return {"images": self._ahead.of(step), **self._objects(self._request(step), (self._seed, step))}

    def _request(self, step: int) -> Request:
        epoch, at = divmod(step, self.steps_per_epoch)
        shape, places = self._epoch(epoch)[at]
        drawn = epoch if self._training else None
        return Request(tuple(Item(self._split, place, drawn) for place in places), shape)

    def _batches(self, epoch: int) -> Places:
        """The batches of one epoch: full ones of each orientation, mixed."""
        pictures = self._pictures
        if self._training:
            order = Stream("order", spec.NAME, self._seed, epoch).permutation(len(pictures)).tolist()
        else:
            order = list(range(len(pictures)))
        groups = self._cut(pictures, order, self._size)
        full = [part for group in groups for part in group if len(part[1]) == self._size]
        if not self._training:
            return full
        mixed = Stream("batches", spec.NAME, self._seed, epoch).permutation(len(full))
        return [full[int(place)] for place in mixed]

    def _cut(self, pictures: list[Picture], order: list[int], size: int) -> list[Places]:
        """Batches for each shape; the last of one may be smaller."""
        found: list[Places] = []
        for shape in self._dims.shapes:
            group = [place for place in order if self._shape(pictures[place]) == shape]
            found.append([(shape, group[at : at + size]) for at in range(0, len(group), size)])
        return found

    def _shape(self, picture: Picture) -> tuple[int, int]:
        """Landscape, squares too, or portrait."""
        return self._dims.shapes[0 if picture.width >= picture.height else -1]

    def _objects(self, request: Request, key: tuple[int, ...]) -> Arrays:
        """Everything of a batch but the images."""
        count, most = len(request.items), self._dims.objects
        arrays: Arrays = {
            "boxes": np.zeros((count, most, 4), np.float32),
            "labels": np.zeros((count, most), np.int32),
            "sizes": np.zeros((count, 2), np.float32),
            "turns": turns(self._dims, *request.shape, count, *key),
        }
        for place, item in enumerate(request.items):
            picture = self._pictures[item.sample]
            height, width = spec.resized(self._dims, picture.height, picture.width)
            arrays["sizes"][place] = height, width
            boxes, have = picture.boxes[:most].copy(), len(picture.labels[:most])
            if self._photographs.flipped(item):
                boxes[:, [0, 2]] = picture.width - boxes[:, [2, 0]]
            ratio = np.array((width / picture.width, height / picture.height))
            arrays["boxes"][place, :have] = boxes * np.tile(ratio, 2)
            arrays["labels"][place, :have] = picture.labels[:most]
        return arrays

    def evaluation(self) -> Iterator[Arrays]:
        """Every validation image once: ``images``, ``sizes`` and ``image``, their numbers, int64 [n]."""
        pictures, reader = self._validation()
        for parts in self._cut(pictures, list(range(len(pictures))), EVALUATION_IMAGES):
            requests = [
                Request(tuple(Item(VAL, at, None) for at in places), shape) for shape, places in parts
            ]
            for request, images in zip(requests, reader.run(requests), strict=True):
                shown = [pictures[item.sample] for item in request.items]
                sizes = [spec.resized(self._dims, picture.height, picture.width) for picture in shown]
                numbers = [picture.number for picture in shown]
                yield {
                    "images": images,
                    "sizes": np.array(sizes, np.float32),
                    "image": np.array(numbers, np.int64),
                }
