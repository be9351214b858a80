"""The frozen counter-based random stream behind weights, orders, negatives and generated data.

SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) used as a
hash of a counter. It uses only integer arithmetic and exact float operations, so every numpy version,
platform and vector extension produces the same bytes; numpy's generators do not guarantee that (NEP 19).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.contract.order import MASK, derive

U64 = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_CHUNK = 1 << 14  # numbers per block; the working memory of a block fits the core's cache
_PART = 1 << 20  # a thread draws at least so many numbers; starting it takes as long as drawing some 10,000
_MOST_THREADS = 16  # more would wait for the interpreter lock between numpy's operations

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

    def uniform(self, count: int, scale: float) -> NDArray[np.float32]:
        """``count`` float32 values, uniform in [-scale, scale)."""
        out = np.empty(count, np.float32)

        def draw(start: int, stop: int) -> None:
            for at in range(start, stop, _CHUNK):
                size = min(_CHUNK, stop - at)
                out[at : at + size] = (self.unit(size, at) * 2.0 - 1.0) * scale

        _draw_parts(draw, count)
        return out

    def normal(self, count: int, scale: float) -> NDArray[np.float32]:
        """``count`` float32 values, nearly normal with standard deviation ``scale``.

        Each is the sum of twelve uniforms less six (variance one, range +-6): no logarithm or exponential,
        whose last bits differ between numpy builds.
        """
        out = np.empty(count, np.float32)
        offsets = np.arange(_CHUNK, dtype=np.uint64) * _times_gamma(12)

        def draw(start: int, stop: int) -> None:
            work = np.empty((2, _CHUNK), np.uint64), np.empty((2, _CHUNK))
            for at in range(start, stop, _CHUNK):
                size = min(_CHUNK, stop - at)
                counters = offsets[:size] + np.uint64((self.key + int(_times_gamma(12 * at + 1))) & MASK)
                out[at : at + size] = (_sum_of_twelve(counters, *work) - 6.0) * scale

        _draw_parts(draw, count)
        return out


def many_threads() -> int:
    """The number of threads for numpy's operations on large arrays: the cores of this process, at most 16."""
    return min(len(os.sched_getaffinity(0)), _MOST_THREADS)


def _draw_parts(draw: Callable[[int, int], None], count: int) -> None:
    """Call ``draw(start, stop)`` for parts of range(count), on several threads where the count is large.

    A draw depends on its position alone, so the parts do not change a byte.
    """
    threads = min(many_threads(), count // _PART)
    if threads < 2:
        draw(0, count)
        return
    edges = [count * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:  # all threads have ended when the block ends
        for _ in pool.map(draw, edges[:-1], edges[1:]):
            pass


def _sum_of_twelve(first: U64, integers: U64, floats: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of twelve consecutive draws, added in their order, for each of the counters ``first``.

    ``integers`` and ``floats`` are work arrays of two rows each; allocating them for each call takes three
    times as long.
    """
    (z, shifted), (draw, total) = (rows[:, : len(first)] for rows in (integers, floats))
    total[:] = 0.0
    for draw_index in range(12):
        np.add(first, _times_gamma(draw_index), out=z)
        _mix_array(z, shifted)
        np.right_shift(z, np.uint64(11), out=z)
        np.multiply(z, 2.0**-53, out=draw)
        total += draw
    return total


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
