"""What every reader of pictures shares: which pictures a batch holds, and what the network sees of each.

A reader (``suite/frameworks/<framework>/input_pipeline.py``, ``pillow_pictures.py``, ``dali_pictures.py``)
decodes and resizes with what its users have. Order, boxes and flips are given to it as integers, so that all
readers give the same pictures; grey levels differ by decoder and by resampling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from suite.contract import BadData, Job

U8 = NDArray[np.uint8]
Box = tuple[int, int, int, int]  # left, upper, right, lower, in pixels; the last two are excluded

AHEAD = 8  # batches that a reader may have begun beyond the one in use; a cold run may have ten


class Item(NamedTuple):
    """One picture of a batch: ``sample`` is its place in ``split``; ``epoch`` is None outside of training."""

    split: str
    sample: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Request:
    """One batch: its pictures in order, each of which becomes ``shape``, (height, width) in pixels."""

    items: tuple[Item, ...]
    shape: tuple[int, int]


class View(NamedTuple):
    """What becomes of a picture.

    ``box`` is cut out, resized to ``size`` (width, height), and mirrored where ``flipped``. Then as much as
    the batch's shape is kept from ``corner`` (left, upper) on, with the dataset's colour beyond the edges.
    """

    box: Box
    size: tuple[int, int]
    corner: tuple[int, int]
    flipped: bool


Place = tuple[Item, tuple[int, int]]  # a picture, and the shape it becomes


class Parts:
    """A batch sampler, as loaders with worker processes take one: each request in at most ``parts`` parts.

    ``counts`` are the parts of each request that was handed out, to put the batches together again.
    """

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.counts: deque[int] = deque()
        self._requests: Iterable[Request] = ()

    def begin(self, requests: Iterable[Request]) -> None:
        """What the next iteration is over."""
        self.counts, self._requests = deque(), requests

    def __iter__(self) -> Iterator[list[Place]]:
        for request in self._requests:
            parts = np.array_split(np.arange(len(request.items)), min(self.parts, len(request.items)))
            self.counts.append(len(parts))
            for part in parts:
                yield [(request.items[at], request.shape) for at in part]


class Pictures(Protocol):
    """The pictures of a dataset; ``fill`` is the colour beyond their edges."""

    fill: tuple[int, int, int]

    def content(self, item: Item) -> bytes:
        """The encoded picture; BadData names what is not there."""

    def file(self, item: Item) -> str | None:
        """The path of a file that holds this picture and nothing else; None where there is none."""

    def name(self, item: Item) -> str:
        """The picture's name in errors: its file, within the dataset, and its record."""

    def view(self, item: Item, width: int, height: int) -> View:
        """What the network sees of the picture, whose size is ``width`` x ``height``."""


class Reader(Protocol):
    """Makes batches of pictures. Its class takes ``(pictures, batch, threads, ahead)``.

    Most batches are of ``batch`` pictures, and at most ``ahead`` are begun before they are asked for. Its
    module has ``DECODER``, which names what decodes, with its version.
    """

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """The pictures [n, height, width, 3] of each request, in order; BadData names the one that is wrong.

        A later call ends an earlier one.
        """


def reader_module(job: Job) -> Any:
    """The module with the ``Reader`` that ``job.loader`` means; ImportError where something is missing."""
    if job.loader == "native":
        return import_module(f"suite.frameworks.{job.key.framework}.input_pipeline")
    return import_module(f"suite.common.{job.loader}_images")


def open_reader(job: Job, pictures: Pictures) -> Reader:
    """The reader of ``job``, with its threads. Nothing is read ahead where requests come one at a time."""
    ahead = 0 if one_at_a_time(job) else AHEAD
    return cast("Reader", reader_module(job).Reader(pictures, job.key.batch, max(1, job.threads), ahead))


def one_at_a_time(job: Job) -> bool:
    """Whether a request comes only when the one before has been answered."""
    return job.key.scenario == "single_stream"


class PendingBatch(Protocol):
    """A batch in the making: a future, or what is like one."""

    def cancel(self) -> Any:
        """Nobody will ask for it."""

    def result(self) -> U8:
        """The finished batch; raises what making it raised."""


class Ahead:
    """The ``run`` of a reader on threads.

    ``begin`` begins a batch, and ``ahead`` of them are begun before they are asked for.
    """

    def __init__(self, begin: Callable[[Request], PendingBatch], ahead: int) -> None:
        self._begin, self._ahead = begin, ahead
        self._begun: deque[PendingBatch] = deque()

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`Reader`."""
        for batch in self._begun:
            batch.cancel()
        begun: deque[PendingBatch] = deque()
        self._begun = begun
        for request in requests:
            begun.append(self._begin(request))
            if len(begun) > self._ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


class Batches:
    """The pictures of step after step; asked for in whatever order, they are the same.

    ``request`` is a pure function of the step. In steps of one they are ready sooner.
    """

    def __init__(self, reader: Reader, request: Callable[[int], Request]) -> None:
        self._reader, self._request = reader, request
        self._run: Iterator[U8] | None = None
        self._next = 0

    def begin(self) -> Batches:
        """These, begun: processes are best started before the model is there, and can read meanwhile."""
        self._run = self._reader.run(self._from(0))
        return self

    def of(self, step: int) -> U8:
        """The pictures of ``step``."""
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
        """Other pictures by the same reader, such as those of an evaluation; steps begin anew afterwards."""
        self._run = None
        return self._reader.run(requests)


def open_batches(job: Job, pictures: Pictures, request: Callable[[int], Request]) -> Batches:
    """The pictures of each step of ``job`` by its reader, begun where anything is read ahead."""
    batches = Batches(open_reader(job, pictures), request)
    return batches if one_at_a_time(job) else batches.begin()


def not_whole(name: str, found: str) -> BadData:
    """The error for a picture that cannot be decoded; ``found`` is what the decoder says."""
    return BadData(f"{name}: expected a whole image, found {found}")


_SCAN, _END = 0xDA, b"\xff\xd9"


def cut_off(content: bytes) -> bool:
    """Whether a JPEG file ends before its picture does, which some decoders fill with grey and say nothing.

    Behind the first scan's header the end marker occurs nowhere else: encoders escape the byte 255. Of other
    formats nothing is said.
    """
    if content[:2] != b"\xff\xd8":
        return False
    at = 2
    while at + 4 <= len(content) and content[at] == 0xFF:
        if content[at + 1] == 0xFF:  # a fill byte
            at += 1
            continue
        length = int.from_bytes(content[at + 2 : at + 4], "big")
        if content[at + 1] == _SCAN:
            return content.find(_END, at + 2 + length) < 0
        at += 2 + length
    return True
