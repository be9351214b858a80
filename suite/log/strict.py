"""A strict JSON decoder for the small files beside a log: ``system.json``, signatures, the registry.

It refuses documents that two decoders could read differently. Logs must also be canonical:
:mod:`suite.log.lines`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from suite.log.canonical import MAX_DEPTH
from suite.log.safe import safe

_MAX_DIGITS = 16


class StrictError(ValueError):
    """Bytes that are not one plain JSON object; the message names what was expected and found."""


def decode(content: bytes, cap: int) -> dict[str, Any]:
    """The object in ``content``, UTF-8 of at most ``cap`` bytes.

    Raises :class:`StrictError` on duplicate keys, numbers that are not integers of at most 16 digits, lone
    surrogates, nesting deeper than a log may have, and anything but one JSON object.
    """
    if len(content) > cap:
        raise StrictError(f"expected at most {cap} bytes, found {len(content)}")
    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_refuse,
            parse_int=_integer,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise StrictError(f"expected UTF-8 JSON, found: {safe(error)}") from None
    if not isinstance(value, dict):
        raise StrictError(f"expected an object, found {type(value).__name__}")
    _examine(value)
    return value


def _examine(value: Any) -> None:
    """Refuse what no schema can refuse: deep nesting, and strings that cannot be encoded."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += [*one, *one.values()]
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str) and any("\ud800" <= character <= "\udfff" for character in one):
                raise StrictError("expected characters, found a lone surrogate")
        if not inner:
            return
        level = inner
    raise StrictError(f"expected nesting of at most {MAX_DEPTH}, found more")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = sorted(key for key, count in counts.items() if count > 1)
        raise StrictError(f"expected each name once, found twice: {', '.join(map(safe, twice))}")
    return value


def _refuse(literal: str) -> Any:
    raise StrictError(f"expected integers and strings, found the number {safe(literal)}")


def _integer(literal: str) -> int:
    if len(literal) > _MAX_DIGITS:
        raise StrictError(f"expected at most {_MAX_DIGITS} digits, found {len(literal)}")
    return int(literal)
