"""Escapes text from a log before it is printed: every terminal, table and error message uses :func:`safe`."""

from __future__ import annotations

import re
import textwrap
import unicodedata

LIMIT = 120
# Lines with these prefixes are commands to continuous-integration services (GitHub, Azure).
_COMMANDS = ("::", "##[", "##vso[")
_COMMAND = re.compile(r":(?=:)|#(?=#)")
_NARROWEST = 40  # columns


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


def foldable(value: object, limit: int = LIMIT) -> str:
    """Text that is safe to print even if a line is folded anywhere in it.

    :func:`safe` escapes a command to a continuous-integration service at the start of a text only; folding
    may put any part of the text at the start of a line.
    """
    return _COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", safe(value, limit))


def folded(text: str, width: int | None, limit: int) -> list[str]:
    """``text``, safe to print, in lines of ``width`` columns, the later ones indented; None: one line."""
    if width is None:
        return [safe(text, limit)]
    indent = " " * (len(text) - len(text.lstrip(" ")) + 3)
    return textwrap.wrap(
        foldable(text, limit), max(width, _NARROWEST), subsequent_indent=indent, break_on_hyphens=False
    )
