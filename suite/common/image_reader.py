"""Types and helpers that all image readers share: the images of a batch, and how each is cut and resized.

A reader (``suite/frameworks/<framework>/input_pipeline.py``, ``pillow_images.py``, ``dali_images.py``)
decodes and resizes with the library that users of its framework have. A reader receives order, boxes and
flips as integers, so all readers produce the same images; grey levels differ by decoder and by resampling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from suite.common.support import decodes_on_gpu
from suite.contract import BadData, Job

U8 = NDArray[np.uint8]
Box = tuple[int, int, int, int]  # left, upper, right, lower, in pixels; the last two are excluded

AHEAD = 8  # batches that a reader may start beyond the one in use; a run with a cold cache may start ten


class Item(NamedTuple):
    """One image of a batch: ``sample`` is its index in ``split``; ``epoch`` is None outside of training."""

    split: str
    sample: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Request:
    """One batch: its images in order; the reader brings each to ``shape``, (height, width) in pixels."""

    items: tuple[Item, ...]
    shape: tuple[int, int]


class View(NamedTuple):
    """How a reader transforms an image.

    The reader cuts out ``box``, resizes it to ``size`` (width, height) and mirrors it if ``flipped``. From
    ``corner`` (left, upper) it then takes the batch's shape, padded with the dataset's fill colour.
    """

    box: Box
    size: tuple[int, int]
    corner: tuple[int, int]
    flipped: bool


ShapedItem = tuple[Item, tuple[int, int]]  # an image, and its shape in the batch


class Images(Protocol):
    """The images of a dataset; ``fill`` is the colour (R, G, B) of the padding beyond their edges."""

    fill: tuple[int, int, int]

    def content(self, item: Item) -> bytes:
        """The encoded image; BadData names a file that is missing."""

    def file(self, item: Item) -> str | None:
        """The path of the file that holds only this image; None where the image is in a shard."""

    def name(self, item: Item) -> str:
        """The image's name in errors: its file, within the dataset, and its record."""

    def view(self, item: Item, width: int, height: int) -> View:
        """The transformation of the image, whose size is ``width`` x ``height``."""


def stored_bytes(images: Images, request: Request) -> int:
    """The bytes of the encoded images of ``request``; those in shards are read again."""
    size = 0
    for item in request.items:
        path = images.file(item)
        size += len(images.content(item)) if path is None else Path(path).stat().st_size
    return size


class DeviceImages:
    """A batch of images in the memory of a GPU, uint8 [n, height, width, 3].

    ``pixels`` exports DLPack, and ``to_host`` copies it to the host. ``row`` [n, 1, width, 3] is one row of
    each image, on the host: what is known of the batch without such a copy.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, pixels: Any, shape: tuple[int, ...], to_host: Callable[[], U8], row: U8) -> None:
        self._pixels, self._to_host = pixels, to_host
        self.shape, self.nbytes, self.row = shape, prod(shape), row

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """A copy on the host, for digests and for frameworks that do not take arrays of a GPU."""
        del copy
        return self._to_host().astype(dtype or self.dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """See the array API standard; the consumer must keep this object until it no longer reads."""
        return self._pixels.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        """See the array API standard."""
        return self._pixels.__dlpack_device__()


class Reader(Protocol):
    """Produces batches of images. Its class takes ``(images, batch, threads, ahead)``.

    One that decodes on a GPU also takes ``gpu``, its number, and produces :class:`DeviceImages`.

    Most batches have ``batch`` images; a reader starts at most ``ahead`` batches before they are requested.
    Its module has ``DECODER``, the name and version of the decoding library.
    """

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """The images [n, height, width, 3] of each request, in order; BadData names a broken image.

        A later call ends an earlier one.
        """


def reader_module(job: Job) -> Any:
    """The module whose ``Reader`` ``job.loader`` selects; ImportError where its library is not installed."""
    where = "gpu_" if decodes_on_gpu(job.key, job.device, job.loader) else ""
    if job.loader == "native":
        return import_module(f"suite.frameworks.{job.key.framework}.{where}input_pipeline")
    return import_module(f"suite.common.{job.loader}_{where}images")


def open_reader(job: Job, images: Images) -> Reader:
    """The reader of ``job``, with its threads; it reads nothing ahead where requests come one at a time."""
    ahead = 0 if one_at_a_time(job) else AHEAD
    gpu = {"gpu": job.device_index} if decodes_on_gpu(job.key, job.device, job.loader) else {}
    return cast("Reader", reader_module(job).Reader(images, job.key.batch, max(1, job.threads), ahead, **gpu))


def one_at_a_time(job: Job) -> bool:
    """Whether each request is sent only after the answer to the previous one."""
    return job.key.scenario == "single_stream"


class PendingBatch(Protocol):
    """A batch that threads are reading: a future, or an object with the same two methods."""

    def cancel(self) -> Any:
        """Drop the work that has not started."""

    def result(self) -> U8:
        """The finished batch; raises the exception of the thread that failed."""


class ReadAhead:
    """The ``run`` of a reader on threads.

    ``start`` starts reading a batch; ``ahead`` batches are started before they are requested.
    """

    def __init__(self, start: Callable[[Request], PendingBatch], ahead: int) -> None:
        self._start, self._ahead = start, ahead
        self._pending: deque[PendingBatch] = deque()

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`Reader`."""
        for batch in self._pending:
            batch.cancel()
        pending: deque[PendingBatch] = deque()
        self._pending = pending
        for request in requests:
            pending.append(self._start(request))
            if len(pending) > self._ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class Batches:
    """The images of any step, in any order of steps; consecutive steps are read ahead.

    ``request`` is a pure function of the step.
    """

    def __init__(self, reader: Reader, request: Callable[[int], Request]) -> None:
        self._reader, self._request = reader, request
        self._run: Iterator[U8] | None = None
        self._next = 0

    def begin(self) -> Batches:
        """Start reading from step 0: worker processes fork before the model is built. Returns this object."""
        self._run = self._reader.run(self._from(0))
        return self

    def of(self, step: int) -> U8:
        """The images of ``step``, uint8 [n, height, width, 3]."""
        if self._run is None or step != self._next:
            self._run = self._reader.run(self._from(step))
        self._next = step + 1
        try:
            return next(self._run)
        except BaseException:
            self._run = None
            raise

    def _from(self, step: int) -> Iterator[Request]:
        while True:
            yield self._request(step)
            step += 1

    def all(self, requests: Iterable[Request]) -> Iterator[U8]:
        """The images of ``requests``, such as an evaluation's, by the same reader. Ends the run of steps."""
        self._run = None
        return self._reader.run(requests)


def open_batches(job: Job, images: Images, request: Callable[[int], Request]) -> Batches:
    """The images of each step of ``job`` by its reader; reading starts at once where it reads ahead."""
    batches = Batches(open_reader(job, images), request)
    return batches if one_at_a_time(job) else batches.begin()


def to_shape(pixels: U8, view: View, shape: tuple[int, int], fill: tuple[int, int, int]) -> U8:
    """``pixels``, cut out and resized as in ``view``: mirrored, then cut and padded to ``shape``."""
    if view.flipped:
        pixels = pixels[:, ::-1]
    left, upper = view.corner
    pixels = pixels[upper : upper + shape[0], left : left + shape[1]]
    if pixels.shape[:2] == shape:
        return pixels
    padded = np.full((*shape, 3), fill, np.uint8)
    padded[: pixels.shape[0], : pixels.shape[1]] = pixels
    return padded


def not_whole(name: str, found: str) -> BadData:
    """The error for the broken image ``name``; ``found`` states how it is broken."""
    return BadData(f"{name}: expected a whole image, found {found}")


class JpegHeader(NamedTuple):
    """What readers need of a JPEG file's header: ``data`` is the position of the first scan's data."""

    width: int
    height: int
    data: int


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers that are followed by the image's size
_SCAN, _END = 0xDA, b"\xff\xd9"


def jpeg_header(content: bytes) -> JpegHeader | None:
    """The header of a JPEG file; None for other formats and without a scan. Five times as fast as Pillow."""
    at, size = 2, (0, 0)
    if content[:2] != b"\xff\xd8":
        return None
    while at + 9 <= len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        length = int.from_bytes(content[at + 2 : at + 4], "big")
        if marker == _SCAN:
            return JpegHeader(*size, at + 2 + length) if all(size) else None
        if marker in _FRAMES:
            height, width = content[at + 5 : at + 7], content[at + 7 : at + 9]
            size = int.from_bytes(width, "big"), int.from_bytes(height, "big")
        at += 2 + length
    return None


def cut_off(content: bytes, header: JpegHeader | None = None) -> bool:
    """Whether a JPEG file lacks its end (False for other formats); some decoders fill it with grey.

    ``header`` is that of ``content``, if it was read before. Behind it the end marker occurs nowhere else:
    encoders escape the byte 255.
    """
    if content[:2] != b"\xff\xd8":
        return False
    header = header or jpeg_header(content)
    # The marker is usually at the end of the file: a search from the front takes 100 us longer.
    return header is None or content.rfind(_END, header.data) < 0
