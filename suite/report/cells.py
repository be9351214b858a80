"""Rows of cells as aligned text or as a Markdown table; cells are escaped. And the text of a key's ranks."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suite.contract import INDEPENDENT
from suite.log.safe import LIMIT, foldable, safe
from suite.log.units import count


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
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    for columns_of in narrowed(widths, least, width - 2 * (len(columns) - 1)):
        table.add_column(overflow="fold", width=columns_of)
    for row in rows:
        table.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> Sequence[int | None]:
    """``widths`` of columns, reduced to ``room`` in total; None if ``least``, for whole words, is more."""
    if sum(least) > room:
        return [None] * len(widths)
    found = list(widths)
    while sum(found) > room:
        found[max(range(len(found)), key=lambda at: found[at] - least[at])] -= 1
    return found


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


def ranks_text(key: Mapping[str, Any], *, headed: bool = False) -> str:
    """Devices and nodes of a key as text; training without an exchange of gradients is named.

    ``headed``: below the head "devices", so that the number stands without the word.
    """
    devices = str(key["devices"]) if headed else count(key["devices"], "device")
    nodes = key.get("nodes", 1)
    alone = key.get("phase") == "train" and key["devices"] != 1 and key.get("strategy") == INDEPENDENT
    return devices + (f" on {nodes} nodes" if nodes != 1 else "") + (", no exchange" if alone else "")
