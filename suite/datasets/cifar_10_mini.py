"""The generator of ``cifar-10-mini``: gratings in the binary format of CIFAR-10, a tenth as many."""

from __future__ import annotations

from suite.datasets import gratings

NAME = "cifar-10-mini"
VERSION = "cifar-10-mini/1"
SEED = 1
CLASSES, SIDE = 10, 32
BATCHES, EACH = 5, 1000  # five training files and one of the test set, as large


def parameters() -> dict[str, int]:
    """The parameters that the manifest records beside the generator's version."""
    return {"seed": SEED, "train": BATCHES * EACH, "test": EACH, "classes": CLASSES}


def generate(seed: int = SEED) -> dict[str, bytes]:
    """The files by name: records of a label and 3,072 bytes, channels first, rows from the top."""
    files = [f"data_batch_{number}.bin" for number in range(1, BATCHES + 1)] + ["test_batch.bin"]
    return {f"cifar-10-batches-bin/{name}": _batch(seed, name) for name in files}


def _batch(seed: int, name: str) -> bytes:
    records = bytearray()
    for index, label in enumerate(gratings.labels((VERSION, seed, name), CLASSES, EACH)):
        pixels = gratings.image((VERSION, seed, name, index), label, CLASSES, SIDE, SIDE)
        records += bytes([label]) + pixels.transpose(2, 0, 1).tobytes()
    return bytes(records)
