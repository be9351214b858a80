"""An image reader with torchvision on a GPU: nvJPEG decodes, matrix products resize.

nvJPEG decodes on the GPU's JPEG engine, where it has one; colours of subsampled images are not interpolated.
The batch stays in the GPU's memory.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torchvision
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg

from suite.common.decoder import decode
from suite.common.encoded_images import LARGEST, DecodedImages, Encoded
from suite.common.image_reader import DeviceImages, Images, Request
from suite.frameworks.pytorch.resizing import chunks, transformed

__all__ = ["DECODER", "Reader"]

DECODER = f"nvJPEG of torchvision {torchvision.__version__} on the GPU, on its JPEG engine if there is one"

_DECODERS = 2  # batches at a time: one is resized while the other one is decoded


class Reader(DecodedImages):
    """See :class:`suite.common.image_reader.Reader`."""

    def __init__(self, images: Images, batch: int, threads: int, ahead: int, gpu: int) -> None:
        self._images, self._device = images, torch.device("cuda", gpu)
        streams = [torch.cuda.Stream(self._device) for _ in range(_DECODERS)]
        decoders = [partial(self._on_stream, stream) for stream in streams]
        super().__init__(images, max(batch, LARGEST), threads, ahead, decoders)
        if ahead:  # pinned memory, which nvJPEG copies without the CPU
            memory = self.encoded.memory
            torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)

    def _on_stream(self, stream: Any, found: list[Encoded], request: Request) -> DeviceImages:
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            decoded, pixels = self._decoded(found, request), list[Tensor]()
            views = [image.view for image in found]
            for part in chunks(views):
                pixels.append(transformed(decoded[part], views[part], request.shape, self._images.fill))
            batch = torch.cat(pixels)
            at = request.items[0].sample % request.shape[0]
            row = batch[:, at : at + 1].cpu().numpy()
            # nvJPEG has a stream of its own, which would write to the memory of images that are still read.
            stream.synchronize()
        return DeviceImages(batch, tuple(batch.shape), lambda: batch.cpu().numpy(), row)

    def _decoded(self, found: list[Encoded], request: Request) -> list[Tensor]:
        """The images, uint8 [3, height, width]; Pillow decodes those that nvJPEG cannot, such as CMYK."""
        contents = [
            torch.from_numpy(content if content.flags.writeable else content.copy()) for content, _ in found
        ]
        try:
            return self._by_nvjpeg(contents)
        except torch.OutOfMemoryError:  # a RuntimeError too
            raise
        except RuntimeError:
            pass  # one of them, which is not known
        images = list[Tensor]()
        for content, item in zip(contents, request.items, strict=True):
            try:
                images += self._by_nvjpeg([content])
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                pixels = np.array(decode(content.numpy().tobytes(), self._images.name(item)))
                images.append(torch.from_numpy(pixels).to(self._device).permute(2, 0, 1))
        return images

    def _by_nvjpeg(self, contents: list[Tensor]) -> list[Tensor]:
        return list(decode_jpeg(contents, ImageReadMode.RGB, self._device))
