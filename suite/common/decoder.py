"""Pillow as decoder of image files, for worker pipelines and for the host that verifies them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import PIL
from PIL import Image, UnidentifiedImageError

from suite.contract import BadData

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

DECODER = f"pillow {PIL.__version__}"


def decode(content: bytes, name: str) -> Picture:
    """The picture in the file ``name`` with ``content``, as RGB; grey and CMYK ones are converted.

    What a camera noted about orientation or colour is ignored, as the published recipes ignore it. BadData
    where the content is no picture, or not all of one.
    """
    try:
        picture: Picture = Image.open(io.BytesIO(content))
        picture.load()  # open reads no more than the header
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadData(f"{name}: expected a whole image, found {told(error)}") from error


def size_of(content: bytes, name: str) -> tuple[int, int]:
    """Width and height of the picture in the file ``name``, whose pixels are not looked at; BadData."""
    try:
        with Image.open(io.BytesIO(content)) as picture:
            width, height = picture.size
            return width, height
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadData(f"{name}: expected a whole image, found {told(error)}") from error


def told(error: BaseException) -> str:
    """What the decoder says, in one line and without the addresses of its objects."""
    if isinstance(error, UnidentifiedImageError):
        return "no picture of a known format"
    return " ".join(str(error).split())[:200] or type(error).__name__
