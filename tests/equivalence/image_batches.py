"""Prints digests of the image batches and generated images that the current interpreter makes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from suite.common.stream import digest_arrays
from suite.datasets import cifar_10_mini, gratings
from suite.workloads._classification import data
from suite.workloads._classification.augment import Draws
from suite.workloads._classification.sources import Records
from tests.fixtures import image_files


def lines(files: Path, records: Path) -> list[str]:
    """Lines of a name and one or more digests."""
    found = []
    for phase in ("train", "infer"):
        batches = data.open_data(image_files.job(files, phase=phase))
        found.append(f"{phase} {' '.join(digest_arrays(batches.batch(step)) for step in range(5))}")
    found.append(f"evaluation {' '.join(digest_arrays(batch) for batch in batches.evaluation())}")
    for side in (28, 32):
        source = Records(records, side, 10, seed=1)
        images = b"".join(source.training(at, Draws.of(1, 0, at)).tobytes() for at in range(50))
        found.append(f"records {side} {hashlib.sha256(images).hexdigest()}")
    made = b"".join(gratings.image(("test", at), at % 4, 4, 72 + at, 96 - at).tobytes() for at in range(20))
    found.append(f"gratings {hashlib.sha256(made).hexdigest()}")
    batch = cifar_10_mini._batch(cifar_10_mini.SEED, "test_batch.bin")
    return [*found, f"cifar-10-mini {hashlib.sha256(batch).hexdigest()}"]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lines(*map(Path, sys.argv[1:]))))
