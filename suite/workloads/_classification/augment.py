"""Random crops and flips from the frozen stream, equal to the last bit on every machine.

Only sums, products and square roots are used: IEEE 754 defines their rounding, unlike that of logarithms and
exponentials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from suite.common.image_reader import Box
from suite.contract.order import derive, draw

ATTEMPTS = 10
_RATIO_BITS = 16


def _roots() -> tuple[float, ...]:
    """The powers 1/2, 1/4, 1/8 and so on of 16/9."""
    roots, value = [], 16 / 9
    for _ in range(_RATIO_BITS):
        value = math.sqrt(value)
        roots.append(value)
    return tuple(roots)


_ROOTS = _roots()


@dataclass(slots=True)
class Draws:
    """The random numbers of one sample in one epoch, independent of threads and reader processes."""

    key: int
    _used: int = field(default=0)

    @classmethod
    def of(cls, seed: int, epoch: int, sample: int) -> Draws:
        """The numbers for the sample at position ``sample`` of the dataset."""
        return cls(derive("augment", seed, epoch, sample))

    def bits(self) -> int:
        """The next 64 bits."""
        self._used += 1
        return draw(self.key, self._used - 1)

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        return self.bits() * bound >> 64

    def unit(self) -> float:
        """A number in [0, 1) with 53 random bits."""
        return (self.bits() >> 11) * 2.0**-53


def aspect(draws: Draws) -> float:
    """Width over height of a crop, from 3/4 to 4/3, log-uniform."""
    choice = draws.below(1 << _RATIO_BITS)
    ratio = 0.75
    for index, root in enumerate(_ROOTS):
        if choice >> (_RATIO_BITS - 1 - index) & 1:
            ratio *= root
    return ratio


def random_resized_crop(width: int, height: int, draws: Draws, least: float = 0.08) -> Box:
    """The part of an image that is resized to the network's square: ``least`` to all of the image's area.

    Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6. After ten failed attempts the crop
    is the centre, as in torchvision's ``RandomResizedCrop``.
    """
    for _ in range(ATTEMPTS):
        area = width * height * (least + (1 - least) * draws.unit())
        ratio = aspect(draws)
        wide, high = int(math.sqrt(area * ratio) + 0.5), int(math.sqrt(area / ratio) + 0.5)
        if 0 < wide <= width and 0 < high <= height:
            left, upper = draws.below(width - wide + 1), draws.below(height - high + 1)
            return left, upper, left + wide, upper + high
    wide, high = width, height
    if 4 * width < 3 * height:
        high = min(height, int(width * 4 / 3 + 0.5))
    elif 3 * width > 4 * height:
        wide = min(width, int(height * 4 / 3 + 0.5))
    left, upper = (width - wide) // 2, (height - high) // 2
    return left, upper, left + wide, upper + high


def short_side(side: int) -> int:
    """The length of the short side from which a centre crop of ``side`` is cut: 256 for 224, 342 for 299."""
    return (256 * side + 112) // 224
