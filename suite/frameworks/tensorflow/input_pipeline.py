"""An image reader with tf.data: TensorFlow's decoding and resizing, on the threads of its pipeline."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.common.image_reader import U8, Images, Item, Request, cut_off, not_whole
from suite.contract import BadData

__all__ = ["DECODER", "Reader"]

DECODER = f"tensorflow {tf.__version__}"

_FINISHED = 2  # finished batches in the queue; the threads work on more
_NO_EPOCH = -1
# Type and shape of the inputs for the images of a request.
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

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        self._images, self._ahead = images, ahead
        self._threads = max(1, min(threads, (ahead - _FINISHED - 1) * batch)) if ahead else 1
        self._pipelines: dict[int, Any] = {}  # by batch size: making one takes half a second
        self._started: tuple[Iterator[Request], list[Request]] = (iter(()), [])
        self._running: list[Any] = []  # at most one iterator
        # Release the iterator before the interpreter ends: an ending interpreter stops the threads that run
        # Python, and the iterator would wait for its threads for ever.
        weakref.finalize(self, self._running.clear)

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        """See :class:`suite.common.image_reader.Reader`. All requests but the last have the same size."""
        requests = iter(requests)
        first = next(requests, None)
        if first is None:
            return iter(())
        size, started = len(first.items), list[Request]()
        self._running.clear()  # ends the threads of an earlier run, which would take these requests
        self._started = (chain((first,), requests), started)
        with tf.device("/CPU:0"):
            if size not in self._pipelines:
                self._pipelines[size] = self._pipeline(size)
            self._running.append(iter(self._pipelines[size]))
        # Read the first batch at once: the pipeline then holds this run's requests, and another may start.
        batches = self._batches(started)
        return chain([next(batches)], batches)

    def _next_row(self, counter: Any) -> tuple[NDArray[Any], ...]:
        """The inputs for the next request, which is noted as started; of no images at the end."""
        del counter
        requests, started = self._started
        request = next(requests, None)
        if request is None:
            return self._row((), (0, 0))
        started.append(request)
        return self._row(request.items, request.shape)

    def _pipeline(self, size: int) -> Any:
        # Not by from_generator: on Python 3.11 it fixes malloc's threshold for mmap at 128 KiB in the whole
        # process (TensorFlow 2.21), and a training step then waits for the pages of its memory.
        def row(counter: Tensor) -> dict[str, Tensor]:
            columns = tf.numpy_function(self._next_row, (counter,), [dtype for dtype, _ in _ROW.values()])
            named = zip(_ROW.items(), columns, strict=True)
            return {name: tf.ensure_shape(tensor, shape) for (name, (_, shape)), tensor in named}

        data = tf.data.Dataset.counter().map(row)
        data = data.take_while(lambda row: tf.size(row["sample"]) > 0).unbatch()
        data = data.map(self._render, num_parallel_calls=self._threads if self._ahead else None)
        data = data.batch(size)
        if self._ahead:
            data = data.prefetch(_FINISHED)
        options = tf.data.Options()
        options.deterministic = True
        options.autotune.enabled = False
        # They would map and batch in parallel, and read further ahead than AHEAD allows.
        options.experimental_optimization.apply_default_optimizations = False
        options.threading.private_threadpool_size = self._threads
        return data.with_options(options)

    def _row(self, items: Sequence[Item], shape: tuple[int, int]) -> tuple[NDArray[Any], ...]:
        """The values of ``items``, in the order of ``_ROW``."""
        return (
            np.array([item.split.encode() for item in items], np.bytes_),
            np.array([item.sample for item in items], np.int64),
            np.array([_NO_EPOCH if item.epoch is None else item.epoch for item in items], np.int64),
            np.array([shape] * len(items), np.int32).reshape(-1, 2),
            np.array([(self._images.file(item) or "").encode() for item in items], np.bytes_),
        )

    def _render(self, row: dict[str, Tensor]) -> Tensor:
        """One image [height, width, 3]."""
        item = [row["split"], row["sample"], row["epoch"]]
        content = tf.cond(
            row["file"] != "",
            lambda: tf.io.read_file(row["file"]),
            lambda: tf.numpy_function(self._content, item, tf.string),
        )
        jpeg = tf.io.is_jpeg(content)

        def whole() -> Tensor:
            return tf.io.decode_image(content, channels=3, expand_animations=False)

        extent = tf.cond(jpeg, lambda: tf.io.extract_jpeg_shape(content)[:2], lambda: tf.shape(whole())[:2])
        # Boxes are drawn in Python by the frozen stream, which costs little compared with decoding.
        view = tf.numpy_function(self._view, [*item, extent], tf.int32, stateful=False)
        window, size, corner, flipped = tf.split(tf.ensure_shape(view, (9,)), (4, 2, 2, 1))
        pixels = tf.cond(
            jpeg,
            lambda: tf.image.decode_and_crop_jpeg(content, window, channels=3, dct_method="INTEGER_ACCURATE"),
            lambda: tf.slice(whole(), tf.concat((window[:2], (0,)), 0), tf.concat((window[2:], (3,)), 0)),
        )
        pixels = tf.image.resize(pixels, size, "bilinear", antialias=True)
        pixels = tf.cast(tf.round(pixels), tf.uint8)  # means of grey levels, from 0 to 255
        # A slice with a step of -1 takes five times as long.
        pixels = tf.cond(flipped[0] > 0, lambda: tf.reverse(pixels, (1,)), lambda: pixels)
        height, width = row["shape"][0], row["shape"][1]
        pixels = pixels[corner[0] : corner[0] + height, corner[1] : corner[1] + width]
        return self._padded(pixels, height, width)

    def _padded(self, pixels: Tensor, height: Tensor, width: Tensor) -> Tensor:
        """``pixels`` with a border below and at the right that fills ``height`` x ``width``."""
        fill = tf.constant(self._images.fill, tf.int16)
        below, right = height - tf.shape(pixels)[0], width - tf.shape(pixels)[1]

        def bordered() -> Tensor:
            # tf.pad has one value for all channels: subtract the colour, pad with zeros, add it again.
            padded = tf.pad(tf.cast(pixels, tf.int16) - fill, ((0, below), (0, right), (0, 0)))
            return tf.cast(padded + fill, tf.uint8)

        pixels = tf.cond(below + right > 0, bordered, lambda: pixels)
        return tf.ensure_shape(pixels, (None, None, 3))

    def _content(self, split: bytes, sample: Any, epoch: Any) -> bytes:
        return self._images.content(_item(split, sample, epoch))

    def _view(self, split: bytes, sample: Any, epoch: Any, extent: Any) -> NDArray[np.int32]:
        view = self._images.view(_item(split, sample, epoch), int(extent[1]), int(extent[0]))
        left, upper, right, lower = view.box
        window, size = (upper, left, lower - upper, right - left), view.size[::-1]
        return np.array((*window, *size, *view.corner[::-1], view.flipped), np.int32)

    def _batches(self, started: list[Request]) -> Iterator[U8]:
        while started is self._started[1]:
            try:
                batch = next(self._running[0], None)
            except tf.errors.OpError as error:
                raise self._image_error(started[0], error) from error
            if batch is None:
                return
            started.pop(0)
            yield batch.numpy()

    def _image_error(self, request: Request, error: Exception) -> Exception:
        """The error that names the broken image of ``request``; ``error`` where none is found."""
        for item in request.items:
            try:
                content = self._images.content(item)
                name = self._images.name(item)
                if cut_off(content):
                    return not_whole(name, "its end missing")
                height, width, _ = tf.io.decode_image(content, channels=3, expand_animations=False).shape
                self._images.view(item, width, height)
            except BadData as bad:
                return bad
            except tf.errors.OpError:
                return not_whole(name, "one that TensorFlow cannot decode")
        return error


def _item(split: bytes, sample: Any, epoch: Any) -> Item:
    return Item(split.decode(), int(sample), None if epoch == _NO_EPOCH else int(epoch))
