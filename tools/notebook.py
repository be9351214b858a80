"""Execute a page written as a script with cells, and write it with its outputs as Markdown.

    python -m tools.notebook docs/reading_results.py

A cell begins with ``# %%``; a cell of text with ``# %% [markdown]``, and its lines are comments. As in a
notebook, the output of a cell is what it prints and the value of its last expression. The page is written to
``docs/reading-results.md``.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)
_NOTE = "<!-- made by `make format` from {name} -->\n"


def cells(source: str) -> Iterator[tuple[bool, str]]:
    """(whether it is text, content) of each cell."""
    parts = _CELL.split(source)[1:]
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        is_text = "[markdown]" in head
        lines = [re.sub(r"^# ?", "", line) if is_text else line for line in body.strip("\n").split("\n")]
        yield is_text, "\n".join(lines)


def output_of(code: str, names: dict[str, Any]) -> str:
    """Execute one cell with the variables ``names``; what it prints, and the value of its last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102 - the page is a file of this project
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307
            if value is not None:
                print(repr(value))
    return out.getvalue()


def rendered(path: Path) -> str:
    """The page with the outputs of its cells, as Markdown."""
    names: dict[str, Any] = {"__name__": "__page__"}
    parts = [_NOTE.format(name=path.as_posix())]
    for is_text, content in cells(path.read_text("utf-8")):
        if is_text:
            parts.append(content + "\n")
            continue
        parts.append(f"```python\n{content}\n```\n")
        if output := output_of(content, names):
            lines = "\n".join(line.rstrip() for line in output.rstrip().split("\n"))
            parts.append(f"```\n{lines}\n```\n")
    return "\n".join(parts)


def page_of(path: Path) -> Path:
    """Where the page of a script is written."""
    return path.with_name(path.stem.replace("_", "-") + ".md")


def main(paths: list[str]) -> int:
    """Write each page."""
    for name in paths:
        path = Path(name)
        page = page_of(path)
        page.write_text(rendered(path), encoding="utf-8")
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
