"""An image reader with NVIDIA DALI on a GPU: decodes, resizes and flips there, and leaves the batch there.

nvJPEG decodes on the GPU's JPEG engine. Where it has none, its multiprocessors decode after the CPU read the
Huffman codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common import dali_images
from suite.common.image_reader import DeviceImages, Images, Request

__all__ = ["DECODER", "Reader"]

_PIPELINES = 3  # batches that are decoded at the same time; with four, more cores are busy

DECODER = f"{dali_images.DECODER} on the GPU, on its JPEG engine if there is one"


class Reader(dali_images.Reader):
    """See :class:`suite.common.image_reader.Reader`."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int, gpu: int) -> None:
        self._gpu = gpu
        super().__init__(images, batch, threads, ahead)

    def pipelines(self, batch: int, threads: int) -> list[Any]:
        """See the base."""
        # Colours are interpolated as libjpeg does it; otherwise images differ by 4 grey levels from Pillow's.
        # Without affine DALI binds no thread to a core: the operating system schedules all.
        decoder = {"hw_decoder_load": 1.0, "jpeg_fancy_upsampling": True, "affine": False}
        each = max(1, threads // _PIPELINES)
        return [
            dali_images.make_pipeline(batch, each, self.images.fill, self._gpu, **decoder)
            for _ in range(_PIPELINES)
        ]

    def more_inputs(self, request: Request) -> dict[str, NDArray[Any]]:
        """The row of each image that comes to the host; another one in each batch."""
        row = request.items[0].sample % request.shape[0]
        return {"row": np.full((len(request.items), 1), row, np.int32)}

    def taken(self, outputs: Any) -> DeviceImages:
        """The batch itself: its memory is not used again while it is referred to."""
        pixels, row = outputs[0].as_tensor(), np.array(outputs[1].as_array())
        return DeviceImages(pixels, tuple(pixels.shape()), lambda: np.array(pixels.as_cpu()), row)
