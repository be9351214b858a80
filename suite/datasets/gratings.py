"""Generated images for the classifiers: a class is the angle and the frequency of a grating.

Each image is a sinusoidal grating in a random colour with a disc in another one and noise on top. Classes
differ in angle, in five steps of the first quadrant, and in frequency. Mirroring an image left to right turns
an angle of the first quadrant into one of the second, which no class has, so that the random flips of
training never change a label. All arithmetic is on integers (see ``suite.datasets.fixed``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream
from suite.datasets import fixed

U8 = NDArray[np.uint8]

ANGLES = 5
FREQUENCIES = (3, 6)  # periods over the image's longer side, of the first and the second half of the classes
_QUADRANT = fixed.ONE // 4
_ANGLE_NOISE = 626  # 0.06 radian in turns of 65,536
_FREQUENCY_NOISE = 3277  # 0.05
_NOISE = 11083  # 25 grey levels over the standard deviation of the sum of four bytes, 147.8


def image(key: tuple[str | int, ...], label: int, classes: int, height: int, width: int) -> U8:
    """The image [height, width, 3] of class ``label``, drawn from the stream ``key``."""
    draws = iter(Stream(*key, "draws").integers(fixed.ONE, 17).tolist())
    tilt, detune = fixed.normal(Stream(*key, "normal"), 2).tolist()
    steps = min(ANGLES, classes) - 1
    angle = _QUADRANT * (label % ANGLES) // steps + (tilt * _ANGLE_NOISE >> fixed.BITS)
    frequency = FREQUENCIES[2 * label >= classes] * (fixed.ONE + (detune * _FREQUENCY_NOISE >> fixed.BITS))
    down, right = np.arange(height)[:, None], np.arange(width)[None, :]
    across = right * _scalar(fixed.cosine, angle) + down * _scalar(fixed.sine, angle)
    wave = fixed.sine((across * frequency >> fixed.BITS) // max(height, width) + next(draws))
    amplitude = _between(next(draws), 35, 70)
    disc = _disc(draws, down, right, min(height, width))
    noise = _noise(Stream(*key, "noise"), height, width)
    planes = np.empty((height, width, 3), np.uint8)
    for channel in range(3):
        base = _between(next(draws), 90, 165)
        # Between 0.3 and 1 of the amplitude, up or down.
        sign, share = 1 - 2 * (next(draws) & 1), 30 + next(draws) * 71 // fixed.ONE
        plane = base + (wave * (sign * share * amplitude) // 100 >> fixed.BITS)
        plane = np.where(disc, next(draws) >> 8, plane) + noise[:, :, channel]
        planes[:, :, channel] = np.clip(plane, 0, 255)
    return planes


def labels(key: tuple[str | int, ...], classes: int, count: int) -> list[int]:
    """``count`` classes, each as often as the others, in an order of the stream ``key``."""
    return [int(index) % classes for index in Stream(*key, "labels").permutation(count)]


def _between(draw: int, low: int, high: int) -> int:
    return low + (draw * (high - low + 1) >> fixed.BITS)


def _scalar(function: Callable[[fixed.I64], fixed.I64], angle: int) -> int:
    return int(function(np.array([angle]))[0])


def _disc(draws: Iterator[int], down: fixed.I64, right: fixed.I64, side: int) -> NDArray[np.bool_]:
    """The pixels of the disc: a radius of 0.08 to 0.2 of the shorter side, anywhere in the image."""
    radius = _between(next(draws), 8 * side, 20 * side)  # in hundredths of a pixel
    x, y = (next(draws) * 100 * extent >> fixed.BITS for extent in (right.size, down.size))
    inside: NDArray[np.bool_] = (100 * right - x) ** 2 + (100 * down - y) ** 2 <= radius * radius
    return inside


def _noise(stream: Stream, height: int, width: int) -> fixed.I64:
    """Noise [height, width, 3], nearly normal: four uniform bytes a value."""
    count = height * width * 3
    halves = stream.bits(-(-count // 2)).astype("<u8").view("<u4")[:count]
    total = np.zeros(count, np.int64)
    for shift in (0, 8, 16, 24):
        total += (halves >> np.uint32(shift)) & np.uint32(255)
    return ((total - 510) * _NOISE >> fixed.BITS).reshape(height, width, 3)
