"""SVG text: escaped elements, widths of text, and the figure that all kinds return.

Figures have presentation attributes only (a content security policy may forbid ``style``), no script and no
external reference. Text, axes and outlines use ``currentColor``, so that an inlined figure has the colours
of its page. Every string may come from a hostile log: it is escaped and bounded here.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from suite.log.safe import safe

WIDTH = 720.0
NARROW = 352.0  # px: a figure for a phone, whose text keeps its size
_MARGIN = 14.0  # px around a figure in a file of its own
SIZE, SMALL, LARGE = 12.0, 10.5, 14.0  # font sizes in px
MUTED = 0.7  # opacity of text that is not the data
_LONGEST = 300  # characters of one string
FONTS = ("DejaVu Sans", "Liberation Sans", "Noto Sans", "Helvetica", "Arial")
_FAMILY = ", ".join(("system-ui", *(f"'{name}'" for name in FONTS), "sans-serif"))
_NARROW, _WIDE = frozenset("ijlI.,:;'|!()[]ft /"), frozenset("mwMW%@—")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of a figure: one heading per column, rows of as many cells. Cells are not escaped."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: ``content`` is SVG, ``title`` and ``description`` are text for those who do not see it."""

    title: str
    description: str
    width: float
    height: float
    content: str
    table: Table

    def inline(self, ids: str) -> str:
        """The ``<svg>`` element for a page; ``ids`` begins its ids, so that many figures share a page.

        Raises ValueError if ``ids`` is not a letter followed by letters, digits, ``-`` and ``_``.
        """
        return self._svg(ids, "", 0)

    def file(self) -> str:
        """A file of its own: dark text on a white background, in every viewer."""
        wide, high = self.width + 2 * _MARGIN, self.height + 2 * _MARGIN
        background = element("rect", x=-_MARGIN, y=-_MARGIN, width=wide, height=high, fill="#ffffff")
        return self._svg("figure", background, _MARGIN, color="#1a1a1a") + "\n"

    def with_watermark(self, text: str) -> Figure:
        """The figure with ``text`` across it, such as ``practice``; without any, the same figure."""
        if not text:
            return self
        x, y = self.width / 2, self.height / 2
        size = min(72.0, self.height / 3)
        turned = f"rotate(-18 {number(x)} {number(y)})"
        word, y = fit(text, self.width, size), y + size / 3
        shown = label(x, y, word, size=size, anchor="middle", weight="bold", opacity=0.09, transform=turned)
        return replace(self, content=shown + self.content, description=f"{self.description} Marked: {text}.")

    def _svg(self, ids: str, background: str, margin: float, **attributes: str) -> str:
        if not _ID.fullmatch(ids):
            raise ValueError(f"ids: expected a letter, then letters, digits, - and _, found {ids!r}")
        wide, high = self.width + 2 * margin, self.height + 2 * margin
        corner, size = number(-margin), f"{number(wide)} {number(high)}"
        return element(
            "svg",
            element("title", text(self.title), id=f"{ids}-title"),
            element("desc", text(self.description, 2000), id=f"{ids}-desc"),
            background,
            self.content,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"{corner} {corner} {size}",
            width=wide,
            height=high,
            role="img",
            aria_labelledby=f"{ids}-title {ids}-desc",
            font_family=_FAMILY,
            font_size=SIZE,
            fill="currentColor",
            **attributes,
        )


def stacked(figures: Sequence[Figure], title: str) -> Figure:
    """The figures below each other as one figure, with one table under another. Raises ValueError on none."""
    if not figures:
        raise ValueError("expected at least one figure, found none")
    if len(figures) == 1:
        return figures[0]
    parts, rows, top = [], [], 0.0
    columns = max(len(figure.table.headings) for figure in figures)
    for figure in figures:
        parts.append(group(figure.content, transform=f"translate(0 {number(top)})"))
        shown = ((figure.title,), figure.table.headings, *figure.table.rows)
        rows += [(*row, *[""] * (columns - len(row))) for row in shown]
        top += figure.height + 12
    width = max(figure.width for figure in figures)
    description = " ".join(figure.description for figure in figures)
    table = Table(tuple(["figure"] + [""] * (columns - 1)), tuple(rows))
    return Figure(title, description, width, top - 12, "".join(parts), table)


def number(value: float) -> str:
    """A coordinate, with at most one decimal."""
    shown = f"{value:.1f}"
    return shown[:-2] if shown.endswith(".0") else shown


def text(value: object, limit: int = _LONGEST) -> str:
    """Text of a log as text of an element or attribute: control characters and markup escaped, bounded."""
    return html.escape(safe(value, limit))


def element(name: str, *children: str, **attributes: str | float | None) -> str:
    """An element of ``children``, which are SVG. Attributes are escaped; ``_`` is ``-``, None is left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = html.escape(value) if isinstance(value, str) else number(value)
            parts.append(f'{key.replace("_", "-")}="{shown}"')
    inner = "".join(children)
    return f"<{' '.join(parts)}>{inner}</{name}>" if inner else f"<{' '.join(parts)}/>"


def group(*children: str, **attributes: str | float | None) -> str:
    """Elements with common attributes."""
    return element("g", *children, **attributes)


def described(shape: str, value: str) -> str:
    """A shape with text that a viewer shows while the pointer is on it."""
    return group(element("title", text(value)), shape)


def label(
    x: float,
    y: float,
    value: str,
    *,
    size: float = SIZE,
    anchor: str | None = None,
    weight: str | None = None,
    opacity: float | None = None,
    transform: str | None = None,
) -> str:
    """A line of text with its baseline at ``y``; ``value`` is not yet escaped."""
    return element(
        "text", text(value), x=x, y=y, text_anchor=anchor, font_weight=weight, transform=transform,
        font_size=None if size == SIZE else size, fill_opacity=None if opacity is None else f"{opacity:g}",
    )  # fmt: skip


def line(x1: float, y1: float, x2: float, y2: float, **attributes: str | float | None) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **({"stroke": "currentColor"} | attributes))


def sentences(*parts: str) -> str:
    """The parts that are not empty as sentences, each with a full stop."""
    return " ".join(f"{part.removesuffix('.')}." for part in parts if part)


def width_of(value: str, size: float = SIZE) -> float:
    """An upper estimate of the width of ``value`` in px, for common sans-serif fonts."""
    return size * sum(map(_width, value))


def _width(character: str) -> float:
    if character in _NARROW:
        return 0.37
    if character in _WIDE:
        return 1.0
    if character.isascii():
        return 0.7 if character.isupper() else 0.63
    return 1.0 if unicodedata.east_asian_width(character) in "WF" else 0.68


def fit(value: object, width: float, size: float = SIZE) -> str:
    """``value`` with control characters escaped, cut with an ellipsis where it is wider than ``width`` px."""
    shown = safe(value, _LONGEST)
    if width_of(shown, size) <= width:
        return shown
    left = width - width_of("…", size)
    for at, character in enumerate(shown):
        left -= size * _width(character)
        if left < 0:
            return shown[:at].rstrip() + "…"
    return shown


def wrapped(value: object, width: float, size: float = SIZE, most: int = 3) -> list[str]:
    """``value`` as ``most`` lines of ``width`` px at most; what does not fit is cut with an ellipsis.

    A word that is wider than a line is broken.
    """
    words = [part for word in safe(value, 3 * _LONGEST).split() for part in _broken(word, width, size)]
    lines: list[str] = []
    while words and len(lines) < most:
        if len(lines) == most - 1:
            lines.append(fit(" ".join(words), width, size))
            break
        taken = 1
        while taken < len(words) and width_of(" ".join(words[: taken + 1]), size) <= width:
            taken += 1
        first = " ".join(words[:taken])
        lines.append(fit(first, width, size))
        words = words[taken:]
    return lines


def _broken(word: str, width: float, size: float) -> list[str]:
    """A word as parts that are at most ``width`` px wide, of at least one character each."""
    if width_of(word, size) <= width:
        return [word]
    parts, left = [""], width
    for character in word:
        taken = size * _width(character)
        if parts[-1] and taken > left:
            parts.append("")
            left = width
        parts[-1] += character
        left -= taken
    return parts


def paragraph(x: float, top: float, lines: Iterable[str], **how: float | str) -> tuple[str, float]:
    """Lines of text below ``top`` and the y where they end. ``how`` is as of :func:`label`."""
    size = float(how.get("size", SIZE))
    shown = []
    for one in lines:
        top += 1.25 * size
        shown.append(label(x, top - 0.25 * size, one, **how))  # type: ignore[arg-type]
    return "".join(shown), top
