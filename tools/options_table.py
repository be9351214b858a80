"""``python -m tools.options_table``: write README.md's table of options from their declarations."""

from __future__ import annotations

from pathlib import Path

from suite.cli.pages import markdown

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = (
    "<!-- options: made by `make format` from suite/plan/options.py -->\n",
    "<!-- end of options -->\n",
)


def updated(text: str) -> str:
    """``text`` with the current table between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("README.md: expected the markers of the table of options, found none")
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def main() -> None:
    """Write the table."""
    README.write_text(updated(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
