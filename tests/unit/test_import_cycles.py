"""No import cycles between modules or between packages; imports inside functions count."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache

import grimp
import pytest

Edges = Mapping[str, Collection[str]]


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("suite", exclude_type_checking_imports=True, cache_dir=None)


def modules() -> Edges:
    """The modules that each module imports."""
    return {name: graph().find_modules_directly_imported_by(name) for name in graph().modules}


def children(package: str) -> Edges:
    """The other children of ``package`` that each child, with its descendants, imports."""
    owners: dict[str, str] = {}
    for child in graph().find_children(package):
        owners |= dict.fromkeys((child, *graph().find_descendants(child)), child)
    edges: dict[str, set[str]] = {child: set() for child in owners.values()}
    for module, owner in owners.items():
        edges[owner] |= {owners[name] for name in modules()[module] if name in owners} - {owner}
    return edges


def packages() -> list[str]:
    return sorted(name for name in graph().modules if graph().find_children(name))


def cycle(edges: Edges) -> list[str]:
    """The names along one cycle, the first one repeated at its end; empty without a cycle."""
    done: set[str] = set()

    def walk(path: list[str]) -> Iterator[list[str]]:
        for name in sorted(edges.get(path[-1], ())):
            if name in path:
                yield [*path[path.index(name) :], name]
            elif name not in done:
                yield from walk([*path, name])
        done.add(path[-1])

    for start in sorted(edges):
        if start not in done and (found := next(walk([start]), None)):
            return found
    return []


def test_modules_have_no_import_cycle() -> None:
    assert cycle(modules()) == []


@pytest.mark.parametrize("package", packages())
def test_packages_have_no_import_cycle(package: str) -> None:
    assert cycle(children(package)) == []


def test_cycle_is_found() -> None:
    assert cycle({"a": "b", "b": "c", "c": "d", "d": "b"}) == ["b", "c", "d", "b"]
    assert cycle({"a": "bc", "b": "d", "c": "d", "d": ""}) == []


def test_imports_inside_functions_count() -> None:
    """``suite.cli.run`` imports the harness in the function that needs it."""
    assert "suite.harness.run" in modules()["suite.cli.run"]
