"""Images and objects read from disk: COCO's folders of JPEG files and their annotations."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from suite.workloads._classification.prefetch import Pending, Prefetch
from suite.workloads.contract import BadData, Job
from suite.workloads.decoder import decode
from suite.workloads.faster_rcnn import index, spec
from suite.workloads.faster_rcnn.coco import Picture
from suite.workloads.faster_rcnn.data import turns
from suite.workloads.faster_rcnn.index import TRAIN, VAL
from suite.workloads.stream import Stream

Arrays = dict[str, NDArray[Any]]
Batches = list[tuple[tuple[int, int], list[int]]]  # shape, and places of its pictures

EVALUATION_IMAGES = 20
FILL = tuple(round(255 * float(part)) for part in spec.MEAN)  # padding: about zero once normalised


class Images:
    """Batches of images of one orientation, in an order of seed and epoch; half of them mirrored.

    Images without an object are not trained on. Inference takes the validation set, in its order.
    """

    def __init__(self, job: Job) -> None:
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._folder, self._seed, self._size = Path(job.data_dir), job.seed, job.key.batch
        self._training = job.key.phase == "train"
        split = TRAIN if self._training else VAL
        found = self._read(split)
        self._pictures = [p for p in found if len(p.labels)] if self._training else found
        self._split = split
        self.steps_per_epoch = len(self._batches(0))
        if not self.steps_per_epoch:
            raise BadData(f"{split}: expected images for a batch of {self._size}, found {len(found)}")
        self._pool = ThreadPoolExecutor(max(1, job.threads))
        self._ahead = Prefetch(self._start)
        self._epochs: dict[int, Batches] = {}

    def _read(self, split: str) -> list[Picture]:
        return index.pictures(self._folder, split, self._dims.classes)

    def slot(self, step: int) -> None:
        """None: batches are read, not staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """See :class:`suite.workloads.contract.Data`; incomplete batches are dropped."""
        return self._ahead.batch(step)

    def _start(self, step: int) -> Pending:
        epoch, at = divmod(step, self.steps_per_epoch)
        if epoch not in self._epochs:
            # Two are kept, since batches ahead of the steps may be of the next epoch.
            self._epochs = {old: self._epochs[old] for old in sorted(self._epochs)[-1:]}
            self._epochs[epoch] = self._batches(epoch)
        shape, places = self._epochs[epoch][at]
        pictures = [self._pictures[place] for place in places]
        flips = [self._training and self._flip(epoch, picture) for picture in pictures]
        return self._begun(self._split, shape, pictures, flips, (self._seed, step))

    def _flip(self, epoch: int, picture: Picture) -> bool:
        return bool(Stream("flip", spec.NAME, self._seed, epoch, picture.number).integers(2, 1)[0])

    def _batches(self, epoch: int) -> Batches:
        """The batches of one epoch: full ones of each orientation, mixed."""
        count = len(self._pictures)
        if self._training:
            order = Stream("order", spec.NAME, self._seed, epoch).permutation(count).tolist()
        else:
            order = list(range(count))
        full = [part for part in self._cut(self._pictures, order, self._size) if len(part[1]) == self._size]
        if not self._training:
            return full
        mixed = Stream("batches", spec.NAME, self._seed, epoch).permutation(len(full))
        return [full[int(place)] for place in mixed]

    def _cut(self, pictures: list[Picture], order: list[int], size: int) -> Batches:
        found: Batches = []
        for shape in self._dims.shapes:
            group = [place for place in order if self._shape(pictures[place]) == shape]
            found += [(shape, group[at : at + size]) for at in range(0, len(group), size)]
        return found

    def _shape(self, picture: Picture) -> tuple[int, int]:
        """Landscape, squares too, or portrait."""
        return self._dims.shapes[0 if picture.width >= picture.height else -1]

    def _begun(
        self,
        split: str,
        shape: tuple[int, int],
        pictures: list[Picture],
        flips: list[bool],
        key: tuple[int, ...],
    ) -> Pending:
        count, most = len(pictures), self._dims.objects
        arrays: Arrays = {
            "images": np.empty((count, *shape, 3), np.uint8),
            "boxes": np.zeros((count, most, 4), np.float32),
            "labels": np.zeros((count, most), np.int32),
            "sizes": np.zeros((count, 2), np.float32),
            "turns": turns(self._dims, *shape, count, *key),
        }
        for place, (picture, flip) in enumerate(zip(pictures, flips, strict=True)):
            height, width = spec.resized(self._dims, picture.height, picture.width)
            arrays["sizes"][place] = height, width
            boxes, have = picture.boxes[:most].copy(), len(picture.labels[:most])
            if flip:
                boxes[:, [0, 2]] = picture.width - boxes[:, [2, 0]]
            ratio = np.array((width / picture.width, height / picture.height))
            arrays["boxes"][place, :have] = boxes * np.tile(ratio, 2)
            arrays["labels"][place, :have] = picture.labels[:most]

        def read(place: int) -> NDArray[np.uint8]:
            return self._image(split, pictures[place], shape, flips[place])

        return Pending(self._pool, arrays, read)

    def _image(self, split: str, picture: Picture, shape: tuple[int, int], flip: bool) -> NDArray[np.uint8]:
        """The image resized, with a border right and below; bilinear with antialiasing."""
        name = f"{split}/{picture.file}"
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise BadData(f"{name}: expected an image, found no such file") from None
        seen = decode(content, name)
        if (seen.height, seen.width) != (picture.height, picture.width):
            raise BadData(
                f"{name}: expected {picture.width}x{picture.height} as its annotations have it, "
                f"found {seen.width}x{seen.height}"
            )
        height, width = spec.resized(self._dims, picture.height, picture.width)
        if (height, width) != (picture.height, picture.width):
            seen = seen.resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(seen)
        found = np.full((*shape, 3), FILL, np.uint8)
        found[:height, :width] = pixels[:, ::-1] if flip else pixels
        return found

    def evaluation(self) -> Iterator[Arrays]:
        """Every validation image once: ``images``, ``sizes`` and ``image``, their numbers, int64 [n]."""
        found = self._read(VAL)
        parts = self._cut(found, list(range(len(found))), EVALUATION_IMAGES)

        def start(step: int) -> Pending:
            shape, places = parts[step]
            chosen = [found[place] for place in places]
            return self._begun(VAL, shape, chosen, [False] * len(chosen), (step,))

        numbers = [np.array([found[place].number for place in places]) for _, places in parts]
        for arrays, image in zip(Prefetch(start).all(len(parts)), numbers, strict=True):
            yield {"images": arrays["images"], "sizes": arrays["sizes"], "image": image.astype(np.int64)}
