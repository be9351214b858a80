"""Decoding one generated JPEG, again and again, on one core or on all: a part of `make baseline`.

A process per core decodes, as the suite's loaders do, because threads of one process would wait for each
other in the interpreter. ``python -m suite.common.baseline_jpeg`` is such a process: for each number on stdin
it decodes so many images and prints the CRC-32 of the pixels of the last one.
"""

from __future__ import annotations

import io
import subprocess
import sys
import zlib
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from suite.common.decoder import DECODER, decode

WIDTH, HEIGHT, QUALITY = 500, 375, 90  # about the mean size of an image of ImageNet
METHOD = f"{DECODER}, one JPEG of {WIDTH}x{HEIGHT} pixels, quality {QUALITY}, new processes for each window"


@cache
def original() -> Any:
    """The pixels that are encoded: waves of several lengths and noise, uint8 of (375, 500, 3)."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [np.sin(rows / a + columns / b) for a, b in ((7.0, 31.0), (23.0, 5.0), (3.0, 11.0))]
    noise = np.random.default_rng(0).normal(0.0, 12.0, (HEIGHT, WIDTH, 3))
    return np.clip(128 + 60 * np.stack(waves, axis=-1) + noise, 0, 255).astype(np.uint8)


@cache
def encoded() -> bytes:
    """The JPEG."""
    file = io.BytesIO()
    Image.fromarray(original()).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def decode_many(count: int) -> int:
    """Decode ``count`` times; the CRC-32 of the last image's pixels."""
    image = None
    for _ in range(count):
        image = decode(encoded(), "the JPEG of the baseline")
    return 0 if image is None else zlib.crc32(image.tobytes())


def mean_error() -> float:
    """The mean difference of a decoded sample from the original, in steps of 255."""
    decoded = np.asarray(decode(encoded(), "the JPEG of the baseline"), dtype=np.int16)
    return float(np.abs(decoded - original()).mean())


class Decoders:
    """Processes that decode at the same time."""

    def __init__(self) -> None:
        self.digests: set[int] = set()  # of all pixels so far: one number, if all are right
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, count: int) -> None:
        """End the processes and start ``count`` new ones; each has decoded an image when this returns.

        In five of 77 baselines JPEG was 6 to 15 % slower in all windows while other series were as usual,
        which looks like a property of a process; so a figure has several.
        """
        self.close()
        command = [sys.executable, "-m", __name__]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        self.run(1)

    def run(self, calls: int) -> None:
        """Each process decodes ``calls`` images; returns when all have."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{calls}\n")
            process.stdin.flush()
        for process in self._processes:
            assert process.stdout is not None
            self.digests.add(int(process.stdout.readline()))

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.communicate()
        self._processes = []


def main() -> int:
    """Answer the numbers on stdin until it ends."""
    for line in sys.stdin:
        print(decode_many(int(line)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
