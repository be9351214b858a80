"""Fixed-point arithmetic for the generators: numbers with 16 fractional bits, integers all the way.

A logarithm of the C library, or numpy's own, may differ in its last bits with the processor's vector
extensions and with numpy's version. Whatever ends in a byte of generated data is therefore computed here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream

I64 = NDArray[np.int64]

BITS = 16
ONE = 1 << BITS
LN_2 = 45426  # ln 2
_LOG2_OF_LN_2 = -34653  # log2(ln 2)
_SINE = (102944, 42048, 4640)  # pi/2, pi - 5/2, pi/2 - 3/2


def log2(values: I64) -> I64:
    """Logarithms to base 2, rounded down, of integers 1 <= v < 2**32; one fractional bit a squaring."""
    if values.size and (int(values.min()) < 1 or int(values.max()) >= 1 << 32):
        raise ValueError("log2 takes integers in 1..2**32-1")
    mantissa = values.astype(np.uint64)
    result = np.zeros(values.shape, np.uint64)
    for shift in (16, 8, 4, 2, 1):  # normalise to [2**31, 2**32)
        small = mantissa < np.uint64(1 << (32 - shift))
        mantissa = np.where(small, mantissa << np.uint64(shift), mantissa)
        result += np.where(small, np.uint64(0), np.uint64(shift))
    for _ in range(BITS):
        mantissa = (mantissa * mantissa) >> np.uint64(31)
        carry = mantissa >> np.uint64(32)
        mantissa >>= carry
        result = (result << np.uint64(1)) | carry
    return result.astype(np.int64)


def normal(stream: Stream, count: int) -> I64:
    """``count`` nearly normal numbers of variance one: twelve uniforms of 16 bits, less six."""
    draws = (stream.bits(count * 3).reshape(count, 3)).astype("<u8").view("<u2")
    total: I64 = draws.astype(np.int64).sum(axis=1)
    return total - 6 * ONE


def gumbel(stream: Stream, count: int) -> I64:
    """``count`` standard Gumbel numbers, -ln(-ln(u))."""
    uniform = np.maximum(stream.integers(1 << 32, count), 1)
    exponential = (32 << BITS) - log2(uniform)  # -log2(u), at least 2**-16
    return ((16 << BITS) - _LOG2_OF_LN_2 - log2(exponential)) * LN_2 >> BITS


def sine(angle: I64) -> I64:
    """Sines of ``angle``, in turns of 65,536, each within 0.0005; any integer is an angle.

    The polynomial of degree five in quarter turns with the value and the slope of the sine at both ends.
    """
    # In quarter turns from -1 to 1: beyond the first quarter the sine goes back the way it came.
    quarter = (((angle + (ONE >> 2)) & (ONE - 1)) << 2) - ONE
    folded = np.where(quarter > ONE, 2 * ONE - quarter, quarter)
    square = folded * folded >> BITS
    inner = _SINE[1] - (square * _SINE[2] >> BITS)
    result: I64 = folded * (_SINE[0] - (square * inner >> BITS)) >> BITS
    return result


def cosine(angle: I64) -> I64:
    """Cosines; see :func:`sine`."""
    return sine(angle + (ONE >> 2))
