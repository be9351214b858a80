"""CRC-32C (Castagnoli; RFC 3720, appendix B.4) with numpy: the standard library has only the other CRC-32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78  # its bits reversed
_ROW = 64  # bytes; as quick for small contents as for large ones
_ONES = 0xFFFFFFFF

U32 = NDArray[np.uint32]


def _by_byte() -> U32:
    """The remainder of each byte."""
    found = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = np.where(found & 1, found >> 1 ^ _POLYNOMIAL, found >> 1).astype(np.uint32)
    return found


_TABLE = _by_byte()


def _through_row() -> list[list[int]]:
    """For each of a remainder's four bytes: what it has become after a row of zeros."""
    values: Any = np.arange(256, dtype=np.uint32)
    tables = []
    for byte in range(4):
        found = (values << np.uint32(8 * byte)).astype(np.uint32)
        for _ in range(_ROW):
            found = _TABLE[found & 255] ^ found >> np.uint32(8)
        tables.append(found.tolist())
    return tables


_SHIFTED = _through_row()


def crc32c(content: bytes) -> int:
    """The checksum of ``content``.

    The remainders of all rows of 64 bytes are computed side by side, and then joined: a remainder of a sum
    is the sum of remainders, and zeros in front change none.
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
    padded[first : first + 4] ^= 255  # starting from ones is the same as this
    columns = np.ascontiguousarray(padded.reshape(rows, _ROW).T)
    remainders = np.zeros(rows, np.uint32)
    for column in columns:
        remainders = _TABLE[(remainders ^ column) & 255] ^ remainders >> 8
    total = 0
    for remainder in remainders.tolist():
        low, second, third, high = (_SHIFTED[at][total >> 8 * at & 255] for at in range(4))
        total = low ^ second ^ third ^ high ^ remainder
    return total ^ _ONES
