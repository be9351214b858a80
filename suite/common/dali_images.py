"""An image reader with NVIDIA DALI on the CPU: decoders, resizing and flips, on the threads of a pipeline.

It needs neither a GPU nor a driver, and returns numpy arrays, so it is the same for every framework (DALI no
longer has a plugin for MXNet). :mod:`suite.common.dali_gpu_images` runs the same pipeline on a GPU.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia import dali
from nvidia.dali import fn, types

from suite.common.encoded_images import LARGEST, DecodedImages, Encoded, encoded
from suite.common.image_reader import Images, Request, View, not_whole

__all__ = ["DECODER", "Reader"]

DECODER = f"nvidia.dali {dali.__version__}"

# Beside the content; each has a row for each image.
_INPUTS = ("start", "extent", "size", "corner", "shape")


class Reader(DecodedImages):
    """See :class:`suite.common.image_reader.Reader`. ``threads`` threads decode."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int) -> None:
        self.images = images
        batch = max(batch, LARGEST)
        decoders = [partial(self._decoded, pipeline) for pipeline in self.pipelines(batch, threads)]
        super().__init__(images, batch, threads, ahead, decoders)

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

    def _decoded(self, pipeline: Any, found: list[Encoded], request: Request) -> Any:
        try:
            return self.taken(run(pipeline, found, request.shape, **self.more_inputs(request)))
        except RuntimeError as error:
            raise self._image_error(request, error) from error

    def _image_error(self, request: Request, error: RuntimeError) -> Exception:
        """The error that names the broken image of ``request``; ``error`` where none is found."""
        for item in request.items:
            try:
                run(make_pipeline(1, 1, self.images.fill), [encoded(self.images, item)], request.shape)
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
        sources = {name: fn.external_source(name=name, device="cpu") for name in _INPUTS}
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


def _size(view: View) -> tuple[int, int]:
    """Rows and columns after resizing; ``resize`` mirrors where the columns are negative.

    On a GPU ``flip`` would launch a kernel for each image.
    """
    width, height = view.size
    return height, -width if view.flipped else width


def run(pipeline: Any, images: list[Encoded], shape: tuple[int, int], **more: NDArray[Any]) -> Any:
    """The outputs of ``pipeline`` for one batch; ``more`` are further inputs, with a row for each image."""
    views = [image.view for image in images]
    boxes = np.array([view.box for view in views], np.int32)[:, [1, 0, 3, 2]]  # rows first, as DALI counts
    inputs = {
        "start": boxes[:, :2],
        "extent": boxes[:, 2:] - boxes[:, :2],
        "size": np.array([_size(view) for view in views], np.float32),
        "corner": np.array([view.corner[::-1] for view in views], np.int32),
        "shape": np.array([shape] * len(images), np.int32),
    }
    pipeline.feed_input("content", [image.content for image in images])
    for name, values in (inputs | more).items():
        pipeline.feed_input(name, np.ascontiguousarray(values))
    return pipeline.run()
