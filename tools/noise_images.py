"""Make many JPEG files for measurements of input pipelines: ``python -m tools.noise_images FOLDER``.

Noise with a spectrum of 1/f, quality 88, 4:2:0: 110 kB for 500 x 375 pixels, as ImageNet's files have on
average. ``--like imagenet`` (the default) writes folders of classes, ``--like coco`` COCO's folders and
annotations with random boxes. ``make data WORKLOAD=resnet50 FROM=FOLDER CUSTOM=1`` (or ``faster_rcnn``)
prepares the set. 54,000 files are 6 GB and take 16 cores half a minute. Builds of Pillow differ in the bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZES = {  # drawn for each image: (width, height)
    "imagenet": ((500, 375), (500, 375), (500, 375), (375, 500), (500, 334)),
    "coco": ((640, 480), (640, 480), (640, 426), (480, 640)),
}
SPLITS = {"imagenet": ("train", "val"), "coco": ("train2017", "val2017")}
QUALITY = 88
_SIDE = 700  # of the noise that a group of images is cut from


def noise(seed: int) -> NDArray[np.uint8]:
    """A square of noise [side, side, 3] whose amplitudes fall with the frequency."""
    generator = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(_SIDE)[:, None], np.fft.rfftfreq(_SIDE)[None])
    frequency[0, 0] = 1
    channels = []
    for _ in range(3):
        phases = np.exp(2j * np.pi * generator.random(frequency.shape))
        values = np.fft.irfft2(phases / frequency, (_SIDE, _SIDE))
        channels.append((values - values.mean()) / values.std() * 50 + 128)
    square: NDArray[np.uint8] = np.clip(np.stack(channels, -1), 0, 255).astype(np.uint8)
    return square


def write_group(folder: Path, like: str, seed: int, first: int, count: int) -> list[dict[str, Any]]:
    """Write ``count`` images, numbered from ``first``, cut from one square of noise; their COCO entries."""
    folder.mkdir(parents=True, exist_ok=True)
    square, draw = noise(seed), random.Random(seed)
    found: list[dict[str, Any]] = []
    for number in range(first, first + count):
        width, height = draw.choice(SIZES[like])
        pixels = np.roll(square, (draw.randrange(_SIDE), draw.randrange(_SIDE)), (0, 1))[:height, :width]
        name = f"{folder.name}_{number:08d}.JPEG" if like == "imagenet" else f"{number:012d}.jpg"
        image = Image.fromarray(np.ascontiguousarray(pixels))
        image.save(folder / name, "JPEG", quality=QUALITY, subsampling=2)
        found.append({"id": number, "file_name": name, "width": width, "height": height})
    return found


def annotated(images: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """COCO's annotations with one to twelve boxes for each image, of categories from 1 to 90."""
    draw, objects = random.Random(seed), list[dict[str, Any]]()
    for image in images:
        for _ in range(draw.randint(1, 12)):
            wide, high = (draw.uniform(0.05, 0.5) * image[side] for side in ("width", "height"))
            left, upper = draw.uniform(0, image["width"] - wide), draw.uniform(0, image["height"] - high)
            objects.append(
                {
                    "id": len(objects) + 1,
                    "image_id": image["id"],
                    "category_id": draw.randint(1, 90),
                    "bbox": [left, upper, wide, high],
                    "area": wide * high,
                    "iscrowd": 0,
                }
            )
    categories = [{"id": number, "name": f"category {number}"} for number in range(1, 91)]
    return {"images": images, "annotations": objects, "categories": categories}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--like", choices=tuple(SIZES), default="imagenet")
    parser.add_argument("--groups", type=int, default=1000, help="of images: the classes of imagenet")
    parser.add_argument("--train", type=int, default=50, help="training images of a group")
    parser.add_argument("--val", type=int, default=4, help="validation images of a group")
    chosen = parser.parse_args()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for number, (split, count) in enumerate(
            zip(SPLITS[chosen.like], (chosen.train, chosen.val), strict=True)
        ):
            folder, groups = chosen.folder / split, range(chosen.groups)
            write = partial(write_group, like=chosen.like, count=count)
            folders = [folder / f"n{group:08d}" if chosen.like == "imagenet" else folder for group in groups]
            jobs = [
                pool.submit(write, each, seed=2 * group + number, first=1 + group * count)
                for group, each in zip(groups, folders, strict=True)
            ]
            images = [image for job in jobs for image in job.result()]
            if chosen.like == "coco":
                (chosen.folder / "annotations").mkdir(exist_ok=True)
                text = json.dumps(annotated(images, number))
                (chosen.folder / "annotations" / f"instances_{split}.json").write_text(text)
            size = sum(path.stat().st_size for path in folder.rglob("*.[Jj]*"))
            print(f"{split}: {len(images)} images, {size / len(images) / 1e3:.1f} kB on average", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
