"""The frozen counter-based random stream behind weights, orders, negatives and generated data.

SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) used as a
hash of a counter. It uses only integer arithmetic and exact float operations, so every numpy version,
platform and vector extension produces the same bytes; numpy's generators do not guarantee that (NEP 19).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.contract.order import MASK, derive

U64 = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_BLOCK = 96 << 10  # uniform values drawn at a time: the working memory of 2.3 MB fits a core's caches
# More threads would wait for the interpreter lock between numpy's operations: on 16 cores, 16 threads take
# longer than 8.
_MOST_THREADS = 8

__all__ = ["Stream", "digest_arrays", "many_threads"]


def _mix_array(z: U64, shifted: U64 | None = None) -> U64:
    """SplitMix64's finaliser, in place; ``shifted`` is a work array of the same size."""
    z ^= np.right_shift(z, np.uint64(30), out=shifted)
    z *= _M1
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= _M2
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return z


def _times_gamma(count: int) -> np.uint64:
    return np.uint64(count * int(_GAMMA) & MASK)


class Stream:
    """Random access to the stream of one key.

    ``Stream("order", seed, epoch)`` and ``Stream("weights", name)`` never share numbers. Draws are addressed
    by position, so neither threads nor the order of calls can change them.
    """

    def __init__(self, *key: str | int) -> None:
        self.key = derive(*key)

    def bits(self, count: int, start: int = 0) -> U64:
        """``count`` uniform 64-bit integers from position ``start``."""
        counter = np.arange(start + 1, start + count + 1, dtype=np.uint64)
        with np.errstate(over="ignore"):
            return _mix_array(counter * _GAMMA + np.uint64(self.key))

    def integers(self, bound: int, count: int, start: int = 0) -> NDArray[np.int64]:
        """``count`` integers in [0, bound), bound at most 2**32; bias below 2**-32 (multiply and shift)."""
        if not 0 < bound <= 1 << 32:
            raise ValueError(f"bound: expected 1 to 2**32, found {bound}")
        high = self.bits(count, start) >> np.uint64(32)
        return ((high * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)

    def unit(self, count: int, start: int = 0) -> NDArray[np.float64]:
        """``count`` float64 values in [0, 1) with 53 random bits each."""
        return (self.bits(count, start) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A permutation of range(count): the stable order of ``count`` random keys."""
        return np.argsort(self.bits(count), kind="stable").astype(np.int64)

    def uniform(self, count: int, scale: float, start: int = 0) -> NDArray[np.float32]:
        """``count`` float32 values from position ``start``, uniform in [-scale, scale)."""
        out = np.empty(count, np.float32)
        for at, draws in self._blocks(count, start, 1):
            draws *= 2.0
            draws -= 1.0
            draws *= scale
            out[at : at + draws.size] = draws[0]
        return out

    def normal(self, count: int, scale: float, start: int = 0) -> NDArray[np.float32]:
        """``count`` float32 values from position ``start``, nearly normal with standard deviation ``scale``.

        Each is the sum of twelve uniforms, added in their order, less six (variance one, range +-6): no
        logarithm or exponential, whose last bits differ between numpy builds.
        """
        out = np.empty(count, np.float32)
        for at, draws in self._blocks(count, start, 12):
            total = np.add.reduce(draws, axis=0)  # row by row
            total -= 6.0
            total *= scale
            out[at : at + total.size] = total
        return out

    def _blocks(self, count: int, start: int, each: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Uniform values [each, numbers], a column for each number, in blocks that begin at the first item.

        The caller may change a block, and uses it before it takes the next: all have the same memory,
        because allocating it takes longer than drawing.
        """
        size = max(1, min(count, _BLOCK // each))
        columns = each * np.arange(size, dtype=np.uint64)
        offsets = np.add.outer(np.arange(each, dtype=np.uint64), columns) * _GAMMA
        bits, shifted, draws = np.empty_like(offsets), np.empty_like(offsets), np.empty(offsets.shape)
        for at in range(0, count, size):
            first = (self.key + int(_times_gamma(each * (start + at) + 1))) & MASK
            np.add(offsets, np.uint64(first), out=bits)
            _mix_array(bits, shifted)
            np.right_shift(bits, np.uint64(11), out=bits)
            np.multiply(bits, 2.0**-53, out=draws)
            yield at, draws[:, : count - at]


def many_threads() -> int:
    """The number of threads for numpy's operations on large arrays: the cores of this process, at most 8."""
    return min(len(os.sched_getaffinity(0)), _MOST_THREADS)


def digest_arrays(arrays: dict[str, NDArray[Any]]) -> str:
    """SHA-256 over named arrays in name order: name, dtype, shape, then little-endian bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        shape = array.shape  # ascontiguousarray makes a scalar one-dimensional
        array = np.ascontiguousarray(array)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        head = f"{name}\0{array.dtype.kind}{array.dtype.itemsize}\0{','.join(map(str, shape))}\0"
        digest.update(head.encode())
        digest.update(array.data)  # in place, and without the interpreter lock
    return digest.hexdigest()
