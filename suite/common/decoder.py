"""Decoding of image files with Pillow, for input pipelines and for the host that verifies datasets."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import PIL
from PIL import Image, UnidentifiedImageError

from suite.contract import BadData

if TYPE_CHECKING:
    from PIL.Image import Image as DecodedImage

DECODER = f"pillow {PIL.__version__}"


def decode(content: bytes, name: str) -> DecodedImage:
    """The image in the file ``name`` with ``content``, as RGB; grey and CMYK images are converted.

    Orientation and colour profile noted by a camera are ignored, as in the published recipes. BadData where
    ``content`` is no image or only a part of one.
    """
    try:
        image: DecodedImage = Image.open(io.BytesIO(content))
        image.load()  # open reads no more than the header
        return image if image.mode == "RGB" else image.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadData(f"{name}: expected a whole image, found {describe_error(error)}") from error


def size_of(content: bytes, name: str) -> tuple[int, int]:
    """Width and height in pixels of the image in the file ``name``, from its header; BadData if broken."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.size
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadData(f"{name}: expected a whole image, found {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """The decoder's message in one line, without the addresses of objects."""
    if isinstance(error, UnidentifiedImageError):
        return "no image of a known format"
    return " ".join(str(error).split())[:200] or type(error).__name__
