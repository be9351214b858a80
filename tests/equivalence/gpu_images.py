"""Compares the images that a GPU decodes with Pillow's, and with themselves when read again.

``python -m tests.equivalence.gpu_images FOLDER LOADER [BATCH]``: FOLDER has images, and the lists
``train.txt`` and ``val.txt``; LOADER is ``dali``, or ``native`` for PyTorch's. Prints one JSON line for each
split: the mean and the largest mean difference of an image in grey levels of 255, and whether a second
reading returned the same bytes, to the host and as a tensor of PyTorch. Exits with 1 if an image differs by
more than the bound, or by anything when it is read again.
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

SIDE, CLASSES, STEPS = 224, 1000, 4
# torchvision's nvJPEG does not interpolate colours: 6.2 for images whose colours are noise.
BOUNDS = {"dali": 0.5, "native": 8.0}


def main(folder: str, loader: str, batch: int = 64) -> int:
    """See the module."""
    images = Files(Path(folder), SIDE, CLASSES, 0.08, 7)
    pillow = image_files.job(Path(folder), batch, threads=8)
    on_gpu = replace(pillow, loader=loader, device="cuda:0")
    framework = workloads.framework_module(on_gpu).Framework(on_gpu)
    gpu, met = open_reader(on_gpu, images), True
    for split in ("train", "val"):

        def requests(split: str = split) -> Iterator[Request]:
            count, epoch = len(images.labels[split]), 0 if split == "train" else None
            for step in range(STEPS):
                items = (Item(split, (step * batch + at) % count, epoch) for at in range(batch))
                yield Request(tuple(items), images.shape)

        wanted = np.concatenate([*open_reader(pillow, images).run(requests())])
        found = np.concatenate([np.asarray(one) for one in gpu.run(requests())])
        tensors = [framework.array(framework.tensor(one)) for one in gpu.run(requests())]
        apart = np.abs(found.astype(np.int16) - wanted).mean(axis=(1, 2, 3))
        again = bool((found == np.concatenate(tensors)).all())
        print(
            json.dumps(
                {
                    "loader": loader,
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
    sys.exit(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
