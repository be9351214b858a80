"""Pictures by tf.data: TensorFlow's own decoding and resizing, on the threads of its pipeline."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.common.image_reader import U8, Item, Pictures, Request, cut_off, not_whole
from suite.contract import BadData

__all__ = ["DECODER", "Reader"]

DECODER = f"tensorflow {tf.__version__}"

_FINISHED = 2  # batches that wait whole; more are in the making on the threads
_NO_EPOCH = -1
# What the pipeline is told of the pictures of a request.
_ROW = {
    "split": (tf.string, (None,)),
    "sample": (tf.int64, (None,)),
    "epoch": (tf.int64, (None,)),
    "shape": (tf.int32, (None, 2)),
    "file": (tf.string, (None,)),
}
Tensor = Any


class Reader:
    """See :class:`suite.common.image_reader.Reader`."""

    def __init__(self, pictures: Pictures, batch: int, threads: int, ahead: int) -> None:
        self._pictures, self._ahead = pictures, ahead
        self._threads = max(1, min(threads, (ahead - _FINISHED - 1) * batch)) if ahead else 1
        self._pipelines: dict[int, Any] = {}  # by the size of their batches: making one takes half a second
        self._begun: tuple[Iterator[Request], list[Request]] = (iter(()), [])
        self._running: list[Any] = []  # the one iterator, once there is one
        # Let go of at exit at the latest: once the interpreter ends, it ends threads that want to run Python,
        # and an iterator would wait for its own for ever.
        weakref.finalize(self, self._running.clear)

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`. All requests but the last are of one size."""
        requests = iter(requests)
        first = next(requests, None)
        if first is None:
            return iter(())
        size, asked = len(first.items), list[Request]()
        self._running.clear()  # ends the threads of an earlier run, or they take of these requests
        self._begun = (chain((first,), requests), asked)
        with tf.device("/CPU:0"):
            if size not in self._pipelines:
                self._pipelines[size] = self._pipeline(size)
            self._running.append(iter(self._pipelines[size]))
        # The first batch at once: with it the pipeline has taken what it reads, and another run may begin.
        taken = self._taken(asked)
        return chain([next(taken)], taken)

    def _asked(self, at: Any) -> tuple[NDArray[Any], ...]:
        """The next request of the run, noted as begun; of no pictures where there is none."""
        del at
        requests, asked = self._begun
        request = next(requests, None)
        if request is None:
            return self._row((), (0, 0))
        asked.append(request)
        return self._row(request.items, request.shape)

    def _pipeline(self, size: int) -> Any:
        # Not by from_generator: on Python 3.11 it fixes malloc's threshold for mmap at 128 KiB in the whole
        # process (TensorFlow 2.21), and a training step then waits for the pages of its memory.
        def row(at: Tensor) -> dict[str, Tensor]:
            found = tf.numpy_function(self._asked, (at,), [kind for kind, _ in _ROW.values()])
            named = zip(_ROW.items(), found, strict=True)
            return {name: tf.ensure_shape(tensor, shape) for (name, (_, shape)), tensor in named}

        data = tf.data.Dataset.counter().map(row)
        data = data.take_while(lambda row: tf.size(row["sample"]) > 0).unbatch()
        data = data.map(self._made, num_parallel_calls=self._threads if self._ahead else None)
        data = data.batch(size)
        if self._ahead:
            data = data.prefetch(_FINISHED)
        options = tf.data.Options()
        options.deterministic = True
        options.autotune.enabled = False
        # They would map and batch in parallel, and so read further ahead than is allowed.
        options.experimental_optimization.apply_default_optimizations = False
        options.threading.private_threadpool_size = self._threads
        return data.with_options(options)

    def _row(self, items: Sequence[Item], shape: tuple[int, int]) -> tuple[NDArray[Any], ...]:
        """The numbers and words of ``items``, in the order of ``_ROW``."""
        return (
            np.array([item.split.encode() for item in items], np.bytes_),
            np.array([item.sample for item in items], np.int64),
            np.array([_NO_EPOCH if item.epoch is None else item.epoch for item in items], np.int64),
            np.array([shape] * len(items), np.int32).reshape(-1, 2),
            np.array([(self._pictures.file(item) or "").encode() for item in items], np.bytes_),
        )

    def _made(self, row: dict[str, Tensor]) -> Tensor:
        """One picture [height, width, 3]."""
        who = [row["split"], row["sample"], row["epoch"]]
        content = tf.cond(
            row["file"] != "",
            lambda: tf.io.read_file(row["file"]),
            lambda: tf.numpy_function(self._content, who, tf.string),
        )
        jpeg = tf.io.is_jpeg(content)

        def whole() -> Tensor:
            return tf.io.decode_image(content, channels=3, expand_animations=False)

        extent = tf.cond(jpeg, lambda: tf.io.extract_jpeg_shape(content)[:2], lambda: tf.shape(whole())[:2])
        # Boxes are drawn on the host: the frozen stream is in Python, and costs little beside decoding.
        facts = tf.numpy_function(self._view, [*who, extent], tf.int32, stateful=False)
        window, size, corner, flipped = tf.split(tf.ensure_shape(facts, (9,)), (4, 2, 2, 1))
        pixels = tf.cond(
            jpeg,
            lambda: tf.image.decode_and_crop_jpeg(content, window, channels=3, dct_method="INTEGER_ACCURATE"),
            lambda: tf.slice(whole(), tf.concat((window[:2], (0,)), 0), tf.concat((window[2:], (3,)), 0)),
        )
        pixels = tf.image.resize(pixels, size, "bilinear", antialias=True)
        pixels = tf.cast(tf.round(tf.clip_by_value(pixels, 0.0, 255.0)), tf.uint8)
        pixels = pixels[:, :: 1 - 2 * flipped[0]]
        high, wide = row["shape"][0], row["shape"][1]
        return self._filled(pixels[corner[0] : corner[0] + high, corner[1] : corner[1] + wide], high, wide)

    def _filled(self, pixels: Tensor, high: Tensor, wide: Tensor) -> Tensor:
        """``pixels`` with a border below and at the right, where they are fewer than ``high`` x ``wide``."""
        fill = tf.constant(self._pictures.fill, tf.int16)
        below, right = high - tf.shape(pixels)[0], wide - tf.shape(pixels)[1]

        def bordered() -> Tensor:
            # Padding is with zeros: moved by the colour, it is with the colour.
            padded = tf.pad(tf.cast(pixels, tf.int16) - fill, ((0, below), (0, right), (0, 0)))
            return tf.cast(padded + fill, tf.uint8)

        found = tf.cond(below + right > 0, bordered, lambda: pixels)
        return tf.ensure_shape(found, (None, None, 3))

    def _content(self, split: bytes, sample: Any, epoch: Any) -> bytes:
        return self._pictures.content(_item(split, sample, epoch))

    def _view(self, split: bytes, sample: Any, epoch: Any, extent: Any) -> NDArray[np.int32]:
        view = self._pictures.view(_item(split, sample, epoch), int(extent[1]), int(extent[0]))
        left, upper, right, lower = view.box
        window, size = (upper, left, lower - upper, right - left), view.size[::-1]
        return np.array((*window, *size, *view.corner[::-1], view.flipped), np.int32)

    def _taken(self, asked: list[Request]) -> Iterator[U8]:
        while asked is self._begun[1]:
            try:
                found = next(self._running[0], None)
            except tf.errors.OpError as error:
                raise self._blamed(asked[0], error) from error
            if found is None:
                return
            asked.pop(0)
            yield found.numpy()

    def _blamed(self, request: Request, error: Exception) -> Exception:
        """The error of the one picture of ``request`` that is wrong: the pipeline does not tell which."""
        for item in request.items:
            try:
                content = self._pictures.content(item)
                name = self._pictures.name(item)
                if cut_off(content):
                    return not_whole(name, "its end missing")
                height, width, _ = tf.io.decode_image(content, channels=3, expand_animations=False).shape
                self._pictures.view(item, width, height)
            except BadData as bad:
                return bad
            except tf.errors.OpError:
                return not_whole(name, "one that TensorFlow cannot decode")
        return error


def _item(split: bytes, sample: Any, epoch: Any) -> Item:
    return Item(split.decode(), int(sample), None if epoch == _NO_EPOCH else int(epoch))
