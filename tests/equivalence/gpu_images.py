"""Compares the images that a GPU decodes with Pillow's, and with themselves when read again.

``python -m tests.equivalence.gpu_images FOLDER LOADER [BATCH] [FRAMEWORK]``: FOLDER has images, and the lists
``train.txt`` and ``val.txt``; LOADER is ``dali``, or ``native`` for PyTorch's. Prints one JSON line for each
split: the mean and the largest mean difference of an image in grey levels of 255, and whether a second
reading returned the same bytes, to the host and as a tensor of FRAMEWORK (by default PyTorch). Exits with 1
if an image differs by more than the bound, or by anything when it is read again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from suite import workloads
from suite.common.image_reader import Item, Request, open_reader
from suite.workloads._classification.sources import Files
from tests.fixtures import image_files

SIDE, CLASSES = 224, 1000
STEPS = 12  # more than are kept until their copies are made
# torchvision's nvJPEG does not interpolate colours: 6.2 for images whose colours are noise.
BOUNDS = {"dali": 0.5, "native": 8.0}


def main(folder: str, loader: str, batch: str = "64", framework_name: str = "pytorch") -> int:
    """See the module."""
    images = Files(Path(folder), SIDE, CLASSES, 0.08, 7)
    size = int(batch)
    pillow = image_files.job(Path(folder), size, threads=8)
    on_gpu = replace(
        pillow, key=replace(pillow.key, framework=framework_name), loader=loader, device="cuda:0"
    )
    framework = workloads.framework_module(on_gpu).Framework(on_gpu)
    gpu, met = open_reader(on_gpu, images), True
    for split in ("train", "val"):

        def requests(split: str = split) -> Iterator[Request]:
            count, epoch = len(images.labels[split]), 0 if split == "train" else None
            for step in range(STEPS):
                items = (Item(split, (step * size + at) % count, epoch) for at in range(size))
                yield Request(tuple(items), images.shape)

        wanted = np.concatenate([*open_reader(pillow, images).run(requests())])
        found = np.concatenate([np.asarray(one) for one in gpu.run(requests())])
        # All of them are made before the first is read: their memory must not be the reader's.
        tensors = [framework.tensor(one) for one in gpu.run(requests())]
        apart = np.abs(found.astype(np.int16) - wanted).mean(axis=(1, 2, 3))
        again = bool((found == np.concatenate([framework.array(one) for one in tensors])).all())
        print(
            json.dumps(
                {
                    "loader": loader,
                    "framework": framework_name,
                    "split": split,
                    "mean": apart.mean(),
                    "largest": apart.max(),
                    "same again": again,
                }
            ),
            flush=True,
        )
        met &= again and apart.max() <= BOUNDS[loader]
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
