"""Rows of cells as aligned text or as a Markdown table; cells are escaped. And the text of a key's ranks."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suite.contract import INDEPENDENT
from suite.log.safe import LIMIT, safe
from suite.log.units import count

_COMMAND = re.compile(r":(?=:)|#(?=#)")


def aligned(rows: Iterable[Iterable[str]], limit: int = LIMIT, width: int | None = None) -> list[str]:
    """One line per row, columns left-aligned, cells truncated at ``limit`` characters.

    If the lines would be longer than ``width`` columns, the cells are folded into several lines.
    """
    cells = [[safe(cell, limit) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        return _folded([[foldable(cell, limit) for cell in row] for row in cells], width)
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _folded(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table whose columns share ``width``."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in rows[0]:
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def foldable(value: object, limit: int = LIMIT) -> str:
    """Text that is safe to print even if a line is folded anywhere in it.

    :func:`suite.log.safe.safe` escapes a command to a continuous-integration service at the start of a text
    only; folding may put any part of the text at the start of a line.
    """
    return _COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", safe(value, limit))


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[str]], limit: int = LIMIT) -> list[str]:
    """The lines of a Markdown table; cells are escaped and truncated at ``limit``, ``heads`` are not."""
    lines = [heads, ["---"] * len(heads), *([escaped(cell, limit) for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def escaped(text: str, limit: int = LIMIT) -> str:
    """Text that cannot leave its cell or become markup, truncated at ``limit`` characters."""
    text = html.escape(safe(text, limit), quote=False)
    for character in "\\|`*_[]":
        text = text.replace(character, "\\" + character)
    return text


def ranks_text(key: Mapping[str, Any]) -> str:
    """Devices and nodes of a key as text; training without an exchange of gradients is named."""
    devices, nodes = count(key["devices"], "device"), key.get("nodes", 1)
    alone = key.get("phase") == "train" and key["devices"] != 1 and key.get("strategy") == INDEPENDENT
    return devices + (f" on {nodes} nodes" if nodes != 1 else "") + (", no exchange" if alone else "")
