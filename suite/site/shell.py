"""The frame of every page: head with its content security policy, navigation, style sheet and script."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from suite.site.html import Html, Node, join, tag, text, trusted

_ASSETS = Path(__file__).with_name("assets")
PRACTICE = "Practice: results of mini scale, which are no submissions."
GENERATOR = "dl-benchmark-suite"
FOOTER = (
    "Every number on this page follows from logs that the checker accepted. Rejected and withdrawn results "
    "stay, struck through, without a score."
)
# The style sheet hides tables that the script changes until it has run: they do not jump.
_FIRST = 'document.documentElement.className = "scripted";'
_NAVIGATION = (
    ("index.html", "Results"),
    ("compare.html", "Compare"),
    ("scaling.html", "Scaling"),
    ("sweeps.html", "Sweeps"),
    ("advice.html", "Advice"),
    ("baselines.html", "Baselines"),
    ("rules.html", "Rules"),
)


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8").strip()


def _hash(content: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


def policy() -> str:
    """The content security policy: the style sheet and the script of the suite, and nothing else."""
    style, scripts = _hash(_asset("style.css")), f"{_hash(_FIRST)} {_hash(_asset('script.js'))}"
    return f"default-src 'none'; script-src {scripts}; style-src {style}; img-src data:; base-uri 'none'"


def page(
    title: str, body: Node, *, depth: int = 0, current: str = "", watermark: bool = False, site: bool = True,
    footer: str = FOOTER,
) -> str:  # fmt: skip
    """A whole page. ``depth`` is 1 for a page in a folder; a report (``site`` False) links to no other page.

    ``watermark``: the page states that its results are of practice; the style sheet writes it across.
    ``footer`` says what the numbers of the page follow from.
    """
    up = "../" * depth
    head = join(
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        tag("meta", charset="utf-8"),
        tag("title", f"{title} · dl-benchmark-suite" if title else "dl-benchmark-suite"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=GENERATOR),
        tag("style", trusted(_asset("style.css"))),
        tag("script", trusted(_FIRST)),
    )
    links = [
        tag("a", label, href=up + address, aria_current="page" if address == current else None)
        for address, label in _NAVIGATION
    ]
    banner = tag(
        "header",
        tag("a", "Skip to content", class_="skip", href="#content"),
        tag("a", "dl-benchmark-suite", class_="brand", href=up + "index.html")
        if site
        else tag("span", "dl-benchmark-suite", class_="brand"),
        tag("nav", links, aria_label="Site") if site else None,
        class_="banner",
    )
    practice = tag("p", PRACTICE, class_="callout practice-note") if watermark else None
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        tag("head", head),
        tag(
            "body",
            banner,
            tag("main", practice, body, id="content", tabindex="-1"),
            tag("footer", footer),
            _script(),
            class_="practice" if watermark else None,
        ),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _script() -> Html:
    return tag("script", trusted(_asset("script.js")))


def data_block(identifier: str, value: Any) -> Html:
    """JSON values for the script, which no browser runs; with ``<`` escaped, no value ends the element."""
    encoded = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    encoded = encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{text(identifier)}">{encoded}</script>')
