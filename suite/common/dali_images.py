"""Image readers with NVIDIA DALI on the CPU: its decoders, resizing and flips, on the threads of its pipeline.

It needs neither a GPU nor a driver, and returns numpy arrays, so it is the same for every framework (DALI no
longer has a plugin for MXNet). :mod:`suite.common.dali_gpu_images` runs the same pipeline on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia import dali
from nvidia.dali import fn, types

from suite.common.decoder import size_of
from suite.common.image_reader import Images, Item, ReadAhead, Request, cut_off, not_whole

__all__ = ["DECODER", "Reader"]

DECODER = f"nvidia.dali {dali.__version__}"

_LARGEST = 100  # images in a batch of an evaluation
_CHUNK = 16  # files that a thread reads at a time
# The inputs of the pipeline beside the encoded images: one row for each image.
_TYPES = {
    "start": np.int32,
    "extent": np.int32,
    "size": np.float32,
    "flipped": np.int32,
    "corner": np.int32,
    "shape": np.int32,
}

Inputs = tuple[Any, ...]  # of one image: its encoded content, and a value for each of _TYPES but the shape


class Reader(ReadAhead):
    """See :class:`suite.common.image_reader.Reader`. ``threads`` threads read files, and as many decode."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        self.images = images
        self._files = ThreadPoolExecutor(threads)
        pipelines = self.pipelines(max(batch, _LARGEST), threads)
        self._free: SimpleQueue[Any] = SimpleQueue()
        for pipeline in pipelines:
            self._free.put(pipeline)
        runs = ThreadPoolExecutor(len(pipelines))
        super().__init__(lambda request: runs.submit(self._batch, request), ahead)

    def pipelines(self, batch: int, threads: int) -> list[Any]:
        """The pipelines, each of which makes one batch of at most ``batch`` images at a time."""
        return [make_pipeline(batch, threads, self.images.fill)]

    def more_inputs(self, request: Request) -> dict[str, NDArray[Any]]:
        """Further inputs of the pipelines for ``request``."""
        del request
        return {}

    def taken(self, outputs: Any) -> Any:
        """The batch, from the outputs of a pipeline: a copy, because the pipeline reuses its memory."""
        return np.array(outputs[0].as_array())

    def _batch(self, request: Request) -> Any:
        items = request.items
        chunks = [items[at : at + _CHUNK] for at in range(0, len(items), _CHUNK)]
        images = [inputs for chunk in self._files.map(self._inputs, chunks) for inputs in chunk]
        pipeline = self._free.get()
        try:
            return self.taken(run(pipeline, images, request.shape, **self.more_inputs(request)))
        except RuntimeError as error:
            raise self._image_error(request, error) from error
        finally:
            self._free.put(pipeline)

    def _inputs(self, items: Sequence[Item]) -> list[Inputs]:
        return [self._input(item) for item in items]

    def _input(self, item: Item) -> Inputs:
        content, name = self.images.content(item), self.images.name(item)
        width, height = size_of(content, name)
        if cut_off(content):
            raise not_whole(name, "its end missing")
        view = self.images.view(item, width, height)
        left, upper, right, lower = view.box
        return (
            np.frombuffer(content, np.uint8),
            (upper, left),
            (lower - upper, right - left),
            view.size[::-1],
            view.flipped,
            view.corner[::-1],
        )

    def _image_error(self, request: Request, error: RuntimeError) -> Exception:
        """The error that names the broken image of ``request``; ``error`` where none is found."""
        for item in request.items:
            try:
                run(make_pipeline(1, 1, self.images.fill), [self._input(item)], request.shape)
            except RuntimeError:
                return not_whole(self.images.name(item), "one that DALI cannot decode")
        return error


def make_pipeline(
    batch: int, threads: int, fill: tuple[int, int, int], gpu: int | None = None, **decoder: Any
) -> Any:
    """A pipeline for at most ``batch`` images, whose inputs are fed by name; ``gpu`` is the GPU's number.

    ``decoder`` are options of the decoder. On a GPU a second output is one row of each image, on the host.
    """
    pipeline = dali.Pipeline(batch, threads, device_id=gpu, prefetch_queue_depth=1)
    with pipeline:
        # The content is not copied: the arrays live until the run ends.
        content = fn.external_source(name="content", device="cpu", no_copy=True)
        sources = {name: fn.external_source(name=name, device="cpu") for name in _TYPES}
        pixels = fn.decoders.image_slice(
            content,
            sources["start"],
            sources["extent"],
            device="cpu" if gpu is None else "mixed",
            axes=(0, 1),
            output_type=types.RGB,
            adjust_orientation=False,  # all readers ignore the orientation that a camera noted
            **decoder,
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
        if gpu is None:
            pipeline.set_outputs(pixels)
        else:
            row = fn.external_source(name="row", device="cpu")
            pipeline.set_outputs(pixels, fn.slice(pixels, start=row, shape=[1], axes=(0,)).cpu())
    pipeline.build()
    return pipeline


def run(pipeline: Any, images: list[Inputs], shape: tuple[int, int], **more: NDArray[Any]) -> Any:
    """The outputs of ``pipeline`` for one batch; ``more`` are further inputs, with a row for each image."""
    content, *columns = zip(*images, strict=True)
    pipeline.feed_input("content", list(content))
    for (name, dtype), column in zip(_TYPES.items(), [*columns, [shape] * len(images)], strict=True):
        pipeline.feed_input(name, np.array(column, dtype))
    for name, values in more.items():
        pipeline.feed_input(name, values)
    return pipeline.run()
