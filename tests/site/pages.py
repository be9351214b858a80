"""Reads pages of the site as a browser would, with the standard library's parser."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "hr", "input", "link"}


class Page(HTMLParser):
    """The elements of a page: names with attributes, texts by ``data-metric``, links, ids."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.metrics: dict[str, list[str]] = {}
        self.text: list[str] = []
        self._open: list[tuple[str, str | None]] = []
        self.feed(source)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        assert len(named) == len(attrs), f"an attribute twice in {attrs}"
        self.elements.append((tag, named))
        if tag not in VOID:
            metric = named.get("data-metric")
            self._open.append((tag, metric))
            if metric is not None:
                self.metrics.setdefault(metric, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        opened, _ = self._open.pop()
        assert opened == tag, f"expected the end of {opened}, found that of {tag}"

    def handle_data(self, data: str) -> None:
        inside = [name for name, _ in self._open]
        if not {"script", "style"} & set(inside):
            self.text.append(data)
        for _, metric in self._open:
            if metric is not None:
                self.metrics[metric][-1] += data

    @property
    def links(self) -> list[str]:
        return [named["href"] for name, named in self.elements if name == "a"]

    @property
    def ids(self) -> list[str]:
        return [named["id"] for _, named in self.elements if "id" in named]


def read(path: Path) -> Page:
    return Page(path.read_text("utf-8"))
