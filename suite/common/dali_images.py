"""Pictures by NVIDIA DALI: its decoders, resizing and flips, on the threads of its pipeline.

The pipeline is one for the CPU, which needs neither a GPU nor a driver, and hands over arrays of numpy: the
same for every framework (there is no plugin for MXNet any more).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from nvidia import dali
from nvidia.dali import fn, types

from suite.common.decoder import size_of
from suite.common.image_reader import U8, Ahead, Item, Pictures, Request, cut_off, not_whole

__all__ = ["DECODER", "Reader"]

DECODER = f"nvidia.dali {dali.__version__}"

_LARGEST = 100  # pictures in a batch of an evaluation
_INPUTS = ("content", "start", "extent", "size", "flipped", "corner", "shape")

Given = tuple[Any, ...]  # one picture: a value for each of the inputs


class Reader(Ahead):
    """See :class:`suite.common.image_reader.Reader`.

    A thread of its own runs the pipeline batch after batch; files are read on threads as many as decode.
    """

    def __init__(self, pictures: Pictures, batch: int, threads: int, ahead: int) -> None:
        self._pictures = pictures
        self._files, self._runs = ThreadPoolExecutor(threads), ThreadPoolExecutor(1)
        self._pipeline = _pipeline(max(batch, _LARGEST), threads, pictures.fill)
        super().__init__(lambda request: self._runs.submit(self._batch, request), ahead)

    def _batch(self, request: Request) -> U8:
        try:
            return _run(self._pipeline, list(self._files.map(self._given, request.items)), request.shape)
        except RuntimeError as error:
            raise self._blamed(request, error) from error

    def _given(self, item: Item) -> Given:
        content, name = self._pictures.content(item), self._pictures.name(item)
        width, height = size_of(content, name)
        if cut_off(content):
            raise not_whole(name, "its end missing")
        view = self._pictures.view(item, width, height)
        left, upper, right, lower = view.box
        return (
            np.frombuffer(content, np.uint8),
            np.array((upper, left), np.int32),
            np.array((lower - upper, right - left), np.int32),
            np.array(view.size[::-1], np.float32),
            np.array(view.flipped, np.int32),
            np.array(view.corner[::-1], np.int32),
        )

    def _blamed(self, request: Request, error: RuntimeError) -> Exception:
        """The error of the one picture of ``request`` that is wrong: the pipeline does not tell which."""
        for item in request.items:
            try:
                _run(_pipeline(1, 1, self._pictures.fill), [self._given(item)], request.shape)
            except RuntimeError:
                return not_whole(self._pictures.name(item), "one that DALI cannot decode")
        return error


def _pipeline(batch: int, threads: int, fill: tuple[int, int, int]) -> Any:
    """A pipeline for at most ``batch`` pictures, whose inputs are fed by name."""
    pipeline = dali.Pipeline(batch, threads, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        given = {name: fn.external_source(name=name, device="cpu") for name in _INPUTS}
        pixels = fn.decoders.image_slice(
            given["content"],
            given["start"],
            given["extent"],
            axes=(0, 1),
            output_type=types.RGB,
            adjust_orientation=False,  # what a camera noted about it is ignored everywhere
        )
        pixels = fn.resize(pixels, size=given["size"], interp_type=types.INTERP_LINEAR, antialias=True)
        pixels = fn.flip(pixels, horizontal=given["flipped"])
        pixels = fn.slice(
            pixels,
            given["corner"],
            given["shape"],
            axes=(0, 1),
            out_of_bounds_policy="pad",
            fill_values=[float(part) for part in fill],
        )
        pipeline.set_outputs(pixels)
    pipeline.build()
    return pipeline


def _run(pipeline: Any, given: list[Given], shape: tuple[int, int]) -> U8:
    """One batch, as a copy: the pipeline uses its own memory again."""
    columns = [*zip(*given, strict=True), [np.array(shape, np.int32)] * len(given)]
    for name, column in zip(_INPUTS, columns, strict=True):
        pipeline.feed_input(name, list(column))
    (found,) = pipeline.run()
    return np.array(found.as_array())
