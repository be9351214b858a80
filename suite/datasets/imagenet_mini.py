"""The generator of ``imagenet-mini``: gratings as JPEG files of 72 to 96 pixels in ImageNet's folders.

The bytes that an encoder writes differ between builds of libjpeg, so the decoded pixels identify the images.
"""

from __future__ import annotations

import io

from suite.common.stream import Stream
from suite.datasets import gratings
from suite.datasets.pixels import list_of, pixels_digest

NAME = "imagenet-mini"
VERSION = "imagenet-mini/1"
SEED = 1
CLASSES = 4
COUNTS = {"train": 2000, "val": 200}
SMALLEST, LARGEST = 72, 96
QUALITY = 95


def parameters() -> dict[str, int]:
    """The parameters that the manifest records beside the generator's version."""
    return {"seed": SEED, **COUNTS, "classes": CLASSES, "quality": QUALITY}


def generate(seed: int = SEED) -> dict[str, bytes]:
    """The files by name: ``train/<class>/<name>.JPEG``, ``val/...`` and their lists."""
    files: dict[str, bytes] = {}
    lists: dict[str, bytes] = {}
    for split, count in COUNTS.items():
        names: dict[str, bytes] = {}
        for index, label in enumerate(gratings.labels((VERSION, seed, split), CLASSES, count)):
            group = f"n{90000000 + label}"
            stem = f"{group}_{index}" if split == "train" else f"ILSVRC2012_val_{index + 1:08d}"
            names[f"{split}/{group}/{stem}.JPEG"] = _image((VERSION, seed, split, index), label)
        files |= names
        rows = ((name, pixels_digest(names[name], name)) for name in sorted(names))
        lists[f"{split}.txt"] = list_of(rows)
    return files | lists


def _image(key: tuple[str | int, ...], label: int) -> bytes:
    from PIL import Image  # here, because reading the dataset catalogue needs no encoder

    span = LARGEST - SMALLEST + 1
    height, width = (SMALLEST + Stream(*key, "size").integers(span, 2)).tolist()
    pixels = gratings.image(key, label, CLASSES, height, width)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue()
