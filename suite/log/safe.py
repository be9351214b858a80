"""Escapes text from a log before it is printed: every terminal, table and error message uses :func:`safe`."""

from __future__ import annotations

import unicodedata

LIMIT = 120
# Lines with these prefixes are commands to continuous-integration services (GitHub, Azure).
_COMMANDS = ("::", "##[", "##vso[")


def safe(value: object, limit: int = LIMIT) -> str:
    r"""``value`` as text with every control, format, surrogate, private and separator character escaped.

    Escape sequences, right-to-left overrides and line breaks become ``\x1b``, ``\u202e``, ``\n``. The text is
    cut at ``limit`` characters, so that one field cannot flood the output. In a command to a
    continuous-integration service (``::error::``) the first character is escaped as well.
    """
    text = value if isinstance(value, str) else str(value)
    cut = len(text) > limit
    shown = text[:limit]
    if not (shown.isascii() and shown.isprintable()):
        shown = "".join(map(_escape, shown))
    if shown.lstrip().startswith(_COMMANDS):
        shown = f"\\x{ord(shown.lstrip()[0]):02x}{shown.lstrip()[1:]}"
    return shown + "…" if cut else shown


def _escape(character: str) -> str:
    if unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character
