"""The generator of ``coco-mini``: scenes of one to three shapes, in the format of COCO 2017.

A category is a shape (rectangle, ellipse, triangle), and has a colour channel that is brightest; backgrounds
are noisy. All arithmetic is on integers. As in ``imagenet_mini``, decoded pixels identify the images.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.datasets.pixels import list_of, pixels_digest

NAME = "coco-mini"
VERSION = "coco-mini/1"
SEED = 1
COUNTS = {"train2017": 400, "val2017": 60}
CATEGORIES = ("rectangle", "ellipse", "triangle")
SMALLEST, LARGEST = 112, 128  # sides of an image
SHORTEST, LONGEST = 21, 51  # sides of a shape: a sixth to two fifths of 128
MOST = 3  # shapes of an image
QUALITY = 95
_TRIES = 64
_NOISE = 88  # thousandths of the sum of four bytes about its mean: a standard deviation of 13 grey levels

Box = tuple[int, int, int, int]  # left, top, width, height


def parameters() -> dict[str, int]:
    """The parameters that the manifest records beside the generator's version."""
    return {"seed": SEED, **COUNTS, "categories": len(CATEGORIES), "quality": QUALITY}


def generate(seed: int = SEED) -> dict[str, bytes]:
    """The files by name: ``<split>/<id>.jpg``, their lists, and ``annotations/instances_<split>.json``."""
    files: dict[str, bytes] = {}
    lists: dict[str, bytes] = {}
    first = 1
    for split, count in COUNTS.items():
        numbers = range(first, first + count)
        first += count
        scenes = {number: scene((VERSION, seed, number)) for number in numbers}
        images = {f"{split}/{number:012d}.jpg": _encoded(scenes[number][0]) for number in numbers}
        files |= images
        lists[f"{split}.txt"] = list_of((name, pixels_digest(images[name], name)) for name in sorted(images))
        text = json.dumps(_instances(scenes), separators=(",", ":"), sort_keys=True)
        lists[f"annotations/instances_{split}.json"] = text.encode("ascii")
    return files | lists


def scene(key: tuple[str | int, ...]) -> tuple[NDArray[np.uint8], list[tuple[int, Box]]]:
    """An image [height, width, 3] and its shapes: category from 1, and box."""
    height, width = (SMALLEST + Stream(*key, "size").integers(LARGEST - SMALLEST + 1, 2)).tolist()
    colours = Stream(*key, "colours")
    planes = np.empty((height, width, 3), np.int64)
    planes[:] = 60 + colours.integers(80, 3)
    shapes = _placed(key, height, width)
    for number, (category, (left, top, wide, high)) in enumerate(shapes, 1):
        colour = 30 + colours.integers(90, 3, 3 * number)
        colour[category - 1] = 200 + int(colours.integers(50, 1, 3 * number + 2)[0])
        part = planes[top : top + high, left : left + wide]
        part[_inside(category, wide, high)] = colour
    return np.clip(planes + _noise(Stream(*key, "noise"), height, width), 0, 255).astype(np.uint8), shapes


def _placed(key: tuple[str | int, ...], height: int, width: int) -> list[tuple[int, Box]]:
    """Shapes that overlap by at most a tenth of their union, at the first positions that fit."""
    wanted = 1 + int(Stream(*key, "count").integers(MOST, 1)[0])
    found: list[tuple[int, Box]] = []
    for attempt in range(_TRIES):
        if len(found) == wanted:
            break
        draws = Stream(*key, "shape", attempt).integers(1 << 16, 5).tolist()
        wide = SHORTEST + (draws[0] * (LONGEST - SHORTEST + 1) >> 16)
        # Between 4/5 and 5/4 of the width, within the limits of a side.
        high = min(LONGEST, max(SHORTEST, wide * (800 + (draws[1] * 450 >> 16)) // 1000))
        left, top = draws[2] * (width - wide + 1) >> 16, draws[3] * (height - high + 1) >> 16
        box = (left, top, wide, high)
        if all(_apart(box, other) for _, other in found):
            found.append((1 + (draws[4] * len(CATEGORIES) >> 16), box))
    return found


def _apart(a: Box, b: Box) -> bool:
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both = max(0, wide) * max(0, high)
    return both * 10 <= a[2] * a[3] + b[2] * b[3] - both


def _inside(category: int, wide: int, high: int) -> NDArray[np.bool_]:
    """Which pixels [high, wide] of its box a shape covers."""
    across = np.abs(2 * np.arange(wide)[None, :] + 1 - wide)
    down = 2 * np.arange(high)[:, None] + 1 - high
    if CATEGORIES[category - 1] == "rectangle":
        return np.ones((high, wide), bool)
    if CATEGORIES[category - 1] == "ellipse":
        return (across * high) ** 2 + (down * wide) ** 2 <= (wide * high) ** 2
    return 2 * across * high <= wide * (down + high + 1)


def _noise(stream: Stream, height: int, width: int) -> NDArray[np.int64]:
    count = height * width * 3
    draws = stream.bits(-(-count // 2)).astype("<u8").view(np.uint8).reshape(-1, 4)[:count]
    total = draws.astype(np.int64).sum(axis=1) - 510
    noise: NDArray[np.int64] = (total * _NOISE // 1000).reshape(height, width, 3)
    return noise


def _encoded(pixels: NDArray[np.uint8]) -> bytes:
    from PIL import Image  # here, because reading the dataset catalogue needs no encoder

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue()


def _instances(scenes: dict[int, tuple[NDArray[np.uint8], list[tuple[int, Box]]]]) -> dict[str, Any]:
    """The fields of COCO's ``instances_*.json`` for boxes."""
    images, annotations = [], []
    for number, (pixels, shapes) in scenes.items():
        height, width = pixels.shape[:2]
        name = f"{number:012d}.jpg"
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        for index, (category, box) in enumerate(shapes):
            annotations.append(
                {
                    "id": number * 10 + index,
                    "image_id": number,
                    "category_id": category,
                    "bbox": list(box),
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    categories = [{"id": index, "name": name} for index, name in enumerate(CATEGORIES, 1)]
    return {"images": images, "annotations": annotations, "categories": categories}
