"""Rows of cells as aligned text or as a Markdown table; cells are escaped. And the text of a key's ranks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suite.contract import INDEPENDENT
from suite.log.safe import LIMIT, safe
from suite.log.units import count


def aligned(rows: Iterable[Iterable[str]], limit: int = LIMIT) -> list[str]:
    """One line per row, columns left-aligned, cells truncated at ``limit`` characters."""
    cells = [[safe(cell, limit) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


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
