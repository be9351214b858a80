"""The canonical bytes of a log line, and the size limits that writer and reader share.

A canonical line is one JSON object: keys in ASCII order, no spaces, integers of magnitude at most 2**53 - 1,
no floats, no control characters inside strings, UTF-8, one LF at the end. Each value has exactly one
encoding. A digest of the bytes is therefore a digest of the value, and the reader detects duplicate keys and
other spellings when it compares a line with its re-encoding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

ZERO = "0" * 64
MAX_INTEGER = 2**53 - 1
MAX_LINE = 64 * 1024
MAX_FILE = 64 * 1024 * 1024
MAX_EVENTS = 1_000_000
MAX_DEPTH = 16
MAX_STRING = 4096  # bytes of UTF-8

_CONTAINERS = frozenset((dict, list))
_TYPES = _CONTAINERS | {str, int, bool, type(None)}
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


class NotCanonicalError(ValueError):
    """A value that a log cannot contain; the message names the location inside the value."""


def sha256_hex(data: bytes) -> str:
    """SHA-256 of ``data`` as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def encode(value: Any) -> bytes:
    """One canonical line of ``value``, with its LF.

    ``value`` may contain dictionaries with ASCII keys, lists, tuples, strings, integers, booleans and None.
    Raises :class:`NotCanonicalError` for any other type and for values beyond the size limits.
    """
    try:
        line = orjson.dumps(value, option=_OPTIONS) + b"\n"
    except TypeError:
        examine(value)  # names the location
        raise
    examine(value, line)
    if len(line) > MAX_LINE:
        raise NotCanonicalError(f"expected a line of at most {MAX_LINE} bytes, found {len(line)}")
    return line


def reencode(value: Any) -> bytes:
    """The canonical bytes (without LF) of a parsed value; the reader compares them with the line.

    The value is not checked, except that integers beyond 2**53 - 1 raise TypeError.
    """
    return orjson.dumps(value, option=_OPTIONS)


def examine(value: Any, encoded: bytes | None = None) -> None:
    """Raise :class:`NotCanonicalError` unless a log can contain ``value``.

    ``encoded`` are its canonical bytes: if they are short plain text, no string needs to be looked at.
    """
    if (
        encoded is None
        or len(encoded) > MAX_STRING
        or not plain_text(encoded)
        or not surely_plain([[value]], 0)
    ):
        _examine(value, "", 1)


def plain_text(data: bytes) -> bool:
    """Whether canonical lines are ASCII without escapes and DEL, so that every string is printable."""
    return data.isascii() and b"\\" not in data and b"\x7f" not in data


def surely_plain(values: Iterable[Mapping[str, Any] | list[Any]], depth: int = 1) -> bool:
    """Whether ``values``, whose encoding is :func:`plain_text`, contain only what a log can contain.

    The function looks for types that a log cannot contain, such as floats, and for nesting beyond MAX_DEPTH;
    the caller has checked the length of the strings. ``depth`` is the depth of ``values`` in their line.
    False means that :func:`examine` must decide.
    """
    level: list[Any] = list(values)
    for _ in range(depth, MAX_DEPTH + 1):
        inner: list[Any] = []
        for container in level:
            inner.extend(container.values() if type(container) is dict else container)
        kinds = set(map(type, inner))
        if not kinds <= _TYPES:
            return False
        if kinds.isdisjoint(_CONTAINERS):
            return True
        level = [value for value in inner if type(value) in _CONTAINERS]
    return False


def _examine(value: Any, location: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _examine_string(value, location)
    elif kind is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise NotCanonicalError(f"{location or 'value'}: integers have magnitude at most 2**53 - 1")
    elif value is None or kind is bool:
        return
    elif kind is float:
        raise NotCanonicalError(f"{location or 'value'}: no floats; write a decimal or hexadecimal string")
    elif kind is dict or kind is list or kind is tuple:
        if depth > MAX_DEPTH:
            raise NotCanonicalError(f"{location or 'value'}: nested deeper than {MAX_DEPTH}")
        if kind is dict:
            for name, inner in value.items():
                if type(name) is not str or not name.isascii() or not name.isprintable():
                    raise NotCanonicalError(
                        f"{location or 'value'}: keys are printable ASCII, found {name!a}"
                    )
                _examine_string(name, location)
                _examine(inner, f"{location}.{name}" if location else name, depth + 1)
        else:
            for index, inner in enumerate(value):
                _examine(inner, f"{location}.{index}" if location else str(index), depth + 1)
    else:
        raise NotCanonicalError(
            f"{location or 'value'}: a log cannot contain a value of type {kind.__name__}"
        )


def _examine_string(value: str, location: str) -> None:
    if len(value) > MAX_STRING // 4 and len(value.encode("utf-8", "surrogatepass")) > MAX_STRING:
        raise NotCanonicalError(f"{location or 'value'}: a string has at most {MAX_STRING} bytes")
    if value.isascii() and value.isprintable():
        return
    for character in value:
        code = ord(character)
        if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000:
            raise NotCanonicalError(f"{location or 'value'}: control character U+{code:04X} in a string")
