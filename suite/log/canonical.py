"""The canonical bytes of a log line, and the caps that writer and reader share.

Canonical: one JSON object, keys in ASCII order, no spaces, integers of magnitude at most 2**53 - 1, no
floats, no control characters inside strings, UTF-8, one LF at the end. One value has exactly one encoding,
so that a digest of the bytes is a digest of the value, and a reader finds every duplicate key, alias or odd
number by comparison.
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

_HOLDERS = frozenset((dict, list))
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


class NotCanonicalError(ValueError):
    """A value that the log cannot hold; the message names the place inside the value."""


def sha256_hex(data: bytes) -> str:
    """SHA-256 of ``data`` as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def encode(value: Any) -> bytes:
    """One canonical line of ``value``, with its LF.

    Dictionaries with ASCII keys, lists, tuples, strings, integers, booleans and None only.
    Raises :class:`NotCanonicalError` on anything else and on everything beyond the caps.
    """
    examine(value)
    line = orjson.dumps(value, option=_OPTIONS) + b"\n"
    if len(line) > MAX_LINE:
        raise NotCanonicalError(f"a line has at most {MAX_LINE} bytes, this one has {len(line)}")
    return line


def reencode(value: Any) -> bytes:
    """The canonical bytes (without LF) of a parsed value, unexamined: the reader compares them with the line.

    Raises TypeError on integers beyond 2**53 - 1.
    """
    return orjson.dumps(value, option=_OPTIONS)


def examine(value: Any) -> None:
    """Raise :class:`NotCanonicalError` unless ``value`` is made of what the log can hold."""
    if not _plain(value):
        _examine(value, "", 1)


def plain_text(data: bytes) -> bool:
    """Whether no string in lines that are their own re-encoding holds an odd character: ASCII, no escapes."""
    return data.isascii() and b"\\" not in data and b"\x7f" not in data


def surely_plain(values: Iterable[Mapping[str, Any]], depth: int = 1) -> bool:
    """Whether objects of :func:`plain_text` that are their own re-encoding are surely what the log can hold.

    Neither floats nor nesting beyond the cap: nothing else could be refused, if lines are no longer than a
    string may be. ``depth`` is that of ``values`` in their line. False means that nobody knows yet.
    """
    level: list[Any] = list(values)
    for _ in range(depth, MAX_DEPTH + 1):
        inner: list[Any] = []
        for holder in level:
            inner.extend(holder.values() if type(holder) is dict else holder)
        kinds = set(map(type, inner))
        if float in kinds:
            return False
        if kinds.isdisjoint(_HOLDERS):
            return True
        level = [value for value in inner if type(value) in _HOLDERS]
    return False


def _plain(root: Any) -> bool:
    """Whether ``root`` is surely allowed: the usual case, without the names of places that an error needs."""
    level = [root]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                if len(value) > MAX_STRING // 4 or not (value.isascii() and value.isprintable()):
                    return False
            elif kind is int:
                if not -MAX_INTEGER <= value <= MAX_INTEGER:
                    return False
            elif kind is dict:
                inner.extend(value)
                inner.extend(value.values())
                if not all(type(name) is str for name in value):
                    return False
            elif kind is list:
                inner.extend(value)
            elif value is not None and kind is not bool:
                return False
        if not inner:
            return True
        level = inner
    return False


def _examine(value: Any, place: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _examine_string(value, place)
    elif kind is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise NotCanonicalError(f"{place or 'value'}: integers have magnitude at most 2**53 - 1")
    elif value is None or kind is bool:
        return
    elif kind is float:
        raise NotCanonicalError(f"{place or 'value'}: no floats; write a decimal or hexadecimal string")
    elif kind is dict or kind is list or kind is tuple:
        if depth > MAX_DEPTH:
            raise NotCanonicalError(f"{place or 'value'}: nested deeper than {MAX_DEPTH}")
        if kind is dict:
            for name, inner in value.items():
                if type(name) is not str or not name.isascii() or not name.isprintable():
                    raise NotCanonicalError(f"{place or 'value'}: keys are printable ASCII, found {name!a}")
                _examine_string(name, place)
                _examine(inner, f"{place}.{name}" if place else name, depth + 1)
        else:
            for index, inner in enumerate(value):
                _examine(inner, f"{place}.{index}" if place else str(index), depth + 1)
    else:
        raise NotCanonicalError(f"{place or 'value'}: the log holds no {kind.__name__}")


def _examine_string(value: str, place: str) -> None:
    if len(value) > MAX_STRING // 4 and len(value.encode("utf-8", "surrogatepass")) > MAX_STRING:
        raise NotCanonicalError(f"{place or 'value'}: a string has at most {MAX_STRING} bytes")
    if value.isascii() and value.isprintable():
        return
    for character in value:
        code = ord(character)
        if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000:
            raise NotCanonicalError(f"{place or 'value'}: control character U+{code:04X} in a string")
