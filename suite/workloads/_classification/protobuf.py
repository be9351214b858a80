"""Reads the wire format of protocol buffers, as far as records of images use it.

Source: "Encoding" in the documentation of Protocol Buffers. ValueError for a malformed message.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of ``message`` in order: field number, and bytes or an integer (fixed ones unsigned)."""
    view, at = memoryview(message), 0
    while at < len(view):
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(view, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(view, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"expected a field of a known kind at byte {at}, found {kind}")
        if at + length > len(view):
            raise ValueError(f"expected a field of {length} bytes at byte {at}, found {len(view) - at}")
        part = view[at : at + length]
        yield tag >> 3, part if kind == _BYTES else int.from_bytes(part, "little")
        at += length


def varints(packed: int | memoryview) -> list[int]:
    """The integers of a repeated field, packed or not."""
    if isinstance(packed, int):
        return [packed]
    values, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value)
    return values


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """An integer of seven bits per byte, lowest first, and the offset of the next byte."""
    value = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise ValueError(f"expected an integer at byte {at}, found none")
        byte = view[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
