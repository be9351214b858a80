"""CRC-32C (Castagnoli; RFC 3720, appendix B.4) with numpy; ``zlib.crc32`` has another polynomial."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78  # with its bits reversed
_ROW = 64  # bytes; about equally fast for small and large contents
_ONES = 0xFFFFFFFF

U32 = NDArray[np.uint32]


def _by_byte() -> U32:
    """The remainder of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ _POLYNOMIAL, table >> 1).astype(np.uint32)
    return table


_TABLE = _by_byte()


def _through_row() -> list[list[int]]:
    """A table for each of a remainder's four bytes: its value after a row of zeros."""
    values: Any = np.arange(256, dtype=np.uint32)
    tables = []
    for byte in range(4):
        shifted = (values << np.uint32(8 * byte)).astype(np.uint32)
        for _ in range(_ROW):
            shifted = _TABLE[shifted & 255] ^ shifted >> np.uint32(8)
        tables.append(shifted.tolist())
    return tables


_SHIFTED = _through_row()


def crc32c(content: bytes) -> int:
    """The checksum of ``content``.

    The remainders of all rows of 64 bytes are computed together and then joined: CRC is linear, and leading
    zeros do not change it.
    """
    if len(content) < 4:
        value = _ONES
        for byte in content:
            value = int(_TABLE[(value ^ byte) & 255]) ^ value >> 8
        return value ^ _ONES
    rows = -(-len(content) // _ROW)
    padded = np.zeros(rows * _ROW, np.uint8)
    padded[-len(content) :] = np.frombuffer(content, np.uint8)
    first = len(padded) - len(content)
    padded[first : first + 4] ^= 255  # equivalent to the initial value of ones
    columns = np.ascontiguousarray(padded.reshape(rows, _ROW).T)
    remainders = np.zeros(rows, np.uint32)
    for column in columns:
        remainders = _TABLE[(remainders ^ column) & 255] ^ remainders >> 8
    total = 0
    for remainder in remainders.tolist():
        low, second, third, high = (_SHIFTED[at][total >> 8 * at & 255] for at in range(4))
        total = low ^ second ^ third ^ high ^ remainder
    return total ^ _ONES
