"""Elements of HTML that are escaped by construction: text can become markup only through :func:`trusted`.

Every string of a log or a submission is hostile. A child of :func:`tag` that is a string is text: control and
direction characters are shown escaped (:mod:`suite.log.safe`), and ``<``, ``>``, ``&`` and quotes become
entities. Addresses must be local, ids plain, and no attribute can hold a script or a style.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import cache
from typing import TypeAlias

from suite.log.safe import safe

LONGEST = 600  # characters of one text
_VOID = frozenset(("meta", "br", "hr", "input", "link"))
_NAME = re.compile(r"[a-z][a-z0-9-]*")
# A page of the site or a position in one: no scheme, no host, no entity.
_ADDRESS = re.compile(r"(?:\.\./)?(?:[a-z]+/)?[a-zA-Z0-9._-]*(?:#[a-zA-Z0-9._=&,-]*)?")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,:;/()%_+–·-]*")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_FORBIDDEN = ("src", "style", "srcset", "action", "formaction", "srcdoc")


class Html(str):
    """Text that is markup already. Only this module makes it, and :func:`trusted` for figures."""

    __slots__ = ()


Node: TypeAlias = "str | int | Iterable[Node] | None"


def trusted(markup: str) -> Html:
    """Markup that another module of the suite escaped: a figure, a style sheet, a script."""
    return Html(markup)


def text(value: object, limit: int = LONGEST) -> Html:
    """``value`` as text, at most ``limit`` characters of it."""
    shown = str(value)
    if len(shown) <= limit and _PLAIN.fullmatch(shown):  # nothing to escape, as in most cells of a table
        return Html(shown)
    return Html(html.escape(safe(shown, limit)))


def join(*children: Node) -> Html:
    """The children one after another; strings are escaped, None is nothing."""
    return Html("".join(_render(child) for child in children))


def tag(name: str, /, *children: Node, **attributes: str | int | bool | None) -> Html:
    """One element. ``class_`` is the attribute class, ``data_sort`` data-sort; None and False are left out.

    Raises ValueError for an attribute that could run a script, or an address that leaves the site.
    """
    shown = "".join(
        _attribute(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{''.join(_render(child) for child in children)}</{name}>")


def _render(child: Node) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, (str, int)):
        return text(child)
    return "".join(_render(one) for one in child)


def _attribute(name: str, value: str | int | bool) -> str:
    if not _allowed(name):
        raise ValueError(f"html: the attribute {name!r} is not allowed")
    if value is True:
        return f" {name}"
    shown = str(value)
    if name == "href" and not _ADDRESS.fullmatch(shown):
        raise ValueError(f"html: expected an address within the site, found {shown!r}")
    if name == "id" and not _ID.fullmatch(shown):
        raise ValueError(f"html: expected a plain id, found {shown!r}")
    return f' {name}="{text(shown)}"'


@cache
def _allowed(name: str) -> bool:
    """Whether an attribute of this name can hold neither script nor style nor the address of a file."""
    return bool(_NAME.fullmatch(name)) and not name.startswith("on") and name not in _FORBIDDEN
