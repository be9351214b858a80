"""The pages of the site. Each module makes the pages of one kind from the collection of results.

A new kind of page is a module here and one entry of :data:`MAKERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from suite.site.collect import Collection
from suite.site.pages import advice, baselines, compare, groups, index, rules, scaling, sweeps

# A maker yields the path of each page within the site, and the page.
MAKERS: tuple[Callable[[Collection], Iterator[tuple[str, str]]], ...] = (
    index.pages,
    groups.pages,
    compare.pages,
    scaling.pages,
    sweeps.pages,
    advice.pages,
    baselines.pages,
    rules.pages,
)

__all__ = ["MAKERS", "all_pages"]


def all_pages(collection: Collection) -> Mapping[str, str]:
    """Every page but those of single results, which :mod:`suite.site.build` keeps in its cache."""
    return {path: page for make in MAKERS for path, page in make(collection)}
