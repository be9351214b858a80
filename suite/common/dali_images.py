"""An image reader with NVIDIA DALI: its decoders, resizing and flips, on the threads of its pipeline.

The pipeline runs on the CPU, needs neither a GPU nor a driver, and returns numpy arrays, so it is the same
for every framework (DALI no longer has a plugin for MXNet).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from nvidia import dali
from nvidia.dali import fn, types

from suite.common.decoder import size_of
from suite.common.image_reader import U8, Images, Item, ReadAhead, Request, cut_off, not_whole

__all__ = ["DECODER", "Reader"]

DECODER = f"nvidia.dali {dali.__version__}"

_LARGEST = 100  # images in a batch of an evaluation
_INPUTS = ("content", "start", "extent", "size", "flipped", "corner", "shape")

Inputs = tuple[Any, ...]  # of one image: a value for each of _INPUTS but the shape


class Reader(ReadAhead):
    """See :class:`suite.common.image_reader.Reader`.

    One thread runs the pipeline batch after batch; ``threads`` threads read files, and as many decode.
    """

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        self._images = images
        self._files, self._runs = ThreadPoolExecutor(threads), ThreadPoolExecutor(1)
        self._pipeline = _pipeline(max(batch, _LARGEST), threads, images.fill)
        super().__init__(lambda request: self._runs.submit(self._batch, request), ahead)

    def _batch(self, request: Request) -> U8:
        try:
            return _run(self._pipeline, list(self._files.map(self._inputs, request.items)), request.shape)
        except RuntimeError as error:
            raise self._image_error(request, error) from error

    def _inputs(self, item: Item) -> Inputs:
        content, name = self._images.content(item), self._images.name(item)
        width, height = size_of(content, name)
        if cut_off(content):
            raise not_whole(name, "its end missing")
        view = self._images.view(item, width, height)
        left, upper, right, lower = view.box
        return (
            np.frombuffer(content, np.uint8),
            np.array((upper, left), np.int32),
            np.array((lower - upper, right - left), np.int32),
            np.array(view.size[::-1], np.float32),
            np.array(view.flipped, np.int32),
            np.array(view.corner[::-1], np.int32),
        )

    def _image_error(self, request: Request, error: RuntimeError) -> Exception:
        """The error that names the broken image of ``request``; ``error`` where none is found."""
        for item in request.items:
            try:
                _run(_pipeline(1, 1, self._images.fill), [self._inputs(item)], request.shape)
            except RuntimeError:
                return not_whole(self._images.name(item), "one that DALI cannot decode")
        return error


def _pipeline(batch: int, threads: int, fill: tuple[int, int, int]) -> Any:
    """A pipeline for at most ``batch`` images, whose inputs are fed by name."""
    pipeline = dali.Pipeline(batch, threads, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        sources = {name: fn.external_source(name=name, device="cpu") for name in _INPUTS}
        pixels = fn.decoders.image_slice(
            sources["content"],
            sources["start"],
            sources["extent"],
            axes=(0, 1),
            output_type=types.RGB,
            adjust_orientation=False,  # all readers ignore the orientation that a camera noted
        )
        pixels = fn.resize(pixels, size=sources["size"], interp_type=types.INTERP_LINEAR, antialias=True)
        pixels = fn.flip(pixels, horizontal=sources["flipped"])
        pixels = fn.slice(
            pixels,
            sources["corner"],
            sources["shape"],
            axes=(0, 1),
            out_of_bounds_policy="pad",
            fill_values=[float(part) for part in fill],
        )
        pipeline.set_outputs(pixels)
    pipeline.build()
    return pipeline


def _run(pipeline: Any, images: list[Inputs], shape: tuple[int, int]) -> U8:
    """One batch, as a copy: the pipeline reuses its memory."""
    columns = [*zip(*images, strict=True), [np.array(shape, np.int32)] * len(images)]
    for name, column in zip(_INPUTS, columns, strict=True):
        pipeline.feed_input(name, list(column))
    (batch,) = pipeline.run()
    return np.array(batch.as_array())
