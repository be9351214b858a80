"""Compares images that PyTorch resizes by matrix products with those that Pillow resizes.

``python -m tests.equivalence.resized_images FOLDER [DEVICE]`` prints one JSON object: for the images of each
split, the mean and the largest mean difference of an image in grey levels of 255.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from suite.common.decoder import decode
from suite.common.image_reader import Item, View
from suite.common.pillow_images import render
from suite.frameworks.pytorch.resizing import chunks, transformed
from suite.workloads._classification.sources import Files

SIDE, SHAPE, FILL = 64, (120, 130), (7, 100, 200)


class Bordered(Files):
    """Images smaller than the shape of a batch, which begins to their left and below their upper edge."""

    def view(self, item: Item, width: int, height: int) -> View:
        """See the base."""
        view = super().view(item, width, height)
        return view._replace(corner=(view.corner[0] - 3, view.corner[1] + 5))


def main(folder: str, device: str = "cpu") -> None:
    """See the module."""
    found: dict[str, Any] = {}
    for split, kind in (("train", Files), ("val", Files), ("bordered", Bordered)):
        images = kind(Path(folder), SIDE, 4, 0.08, 7)
        images.fill = FILL
        source, shape = ("val", SHAPE) if split == "bordered" else (split, images.shape)
        epochs = (0, 1, 2) if split == "train" else (None,)
        items = [Item(source, at, epoch) for epoch in epochs for at in range(len(images.labels[source]))]
        pixels = [np.array(decode(images.content(item), images.name(item))) for item in items]
        views = [
            images.view(item, each.shape[1], each.shape[0]) for item, each in zip(items, pixels, strict=True)
        ]
        decoded = [torch.from_numpy(each).to(device).permute(2, 0, 1) for each in pixels]
        resized = transformed(decoded, views, shape, FILL).cpu().numpy()
        wanted = np.stack([render(images, item, shape) for item in items])
        apart = np.abs(resized.astype(np.int16) - wanted).mean(axis=(1, 2, 3))
        found[split] = {"images": len(items), "mean": apart.mean(), "largest": apart.max()}
        found[split]["flipped"] = sum(view.flipped for view in views)
        found[split]["padded"] = bool((wanted[:, -1] == FILL).all())
    sizes = ((500, 375), (500, 375), (9331, 6530), (400, 300), *[(224, 224)] * 300)
    parts = list(chunks([View((7, 9, 7 + wide, 9 + high), (1, 1), (0, 0), False) for wide, high in sizes]))
    found["chunks"] = [[part.start, part.stop] for part in parts]
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
