"""The first page: all results in one table with filters, and the ways to the other pages."""

from __future__ import annotations

from collections.abc import Iterator

from suite.log.units import count
from suite.site import parts
from suite.site.collect import Collection, Result
from suite.site.html import Html, Node, tag
from suite.site.shell import page

_ABOUT = (
    "Each row is one run, of five repeats unless its page states others. Its score is computed from its log, "
    "which the checker accepted. "
    "Only rows of equal workload, phase, precision, batch, scale and data measure the same thing. "
    'With "train independent" each device trains a model of its own, for comparison in a scaling set.'
)


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """The index."""
    links = parts.Links()
    body = [
        tag("h1", "Results"),
        tag("p", _summary(collection.results), class_="lead"),
        tag("p", _ABOUT, class_="note"),
        _ways(collection, links),
        parts.results_table(collection.results, links, "All results, the newest first", index=True)
        if collection.results
        else tag("p", "No results."),
        _between(collection, links),
    ]
    yield "index.html", page("Results", body, current="index.html")


def _summary(results: tuple[Result, ...]) -> str:
    accepted = [one for one in results if not one.struck and one.facts["audit"]["scored"]]
    submitters = {one.submitter for one in results if one.submitter}
    text = f"{count(len(accepted), 'accepted result')} with a score"
    if submitters:
        text += f" from {count(len(submitters), 'submitter')}"
    withdrawn = sum(one.withdrawal is not None for one in results)
    rejected = sum(one.struck for one in results) - withdrawn
    others = len(results) - len(accepted) - rejected - withdrawn
    text += f"; {rejected} rejected" if rejected else ""
    text += f"; {withdrawn} withdrawn" if withdrawn else ""
    return text + (f"; {others} without a score" if others else "") + "."


def _ways(collection: Collection, links: parts.Links) -> Html:
    """Links to the pages of workloads, systems and submitters."""
    ways: list[tuple[str, Node]] = []
    workloads = parts.grouped(collection.results, parts.known_workload)
    if known := {name: some for name, some in workloads.items() if name}:
        ways.append(
            (
                "Workloads",
                _list([(links.to(f"workload/{name}.html"), name, len(some)) for name, some in known.items()]),
            )
        )
    systems = parts.grouped([one for one in collection.results if one.system], lambda one: one.system)
    if systems:
        listed = [
            (links.to(f"system/{name}.html"), some[0].row.system, len(some)) for name, some in systems.items()
        ]
        ways.append(("Systems", _list(listed)))
    submitters = parts.grouped(
        [one for one in collection.results if one.submitter], lambda one: one.submitter
    )
    if submitters:
        listed = [(links.to(f"submitter/{name}.html"), name, len(some)) for name, some in submitters.items()]
        ways.append(("Submitters", _list(listed)))
    return parts.definitions(ways) if ways else Html("")


def _list(items: list[tuple[str | None, str, int]]) -> list[Node]:
    return [
        tag("span", parts.link(address, name), tag("span", f" {number}", class_="count"), class_="way")
        for address, name, number in items
    ]


def _between(collection: Collection, links: parts.Links) -> Node:
    """Findings about the registry, and about several submissions together."""
    if not collection.findings:
        return None
    rows = [
        tag(
            "li",
            parts.link(links.rule(one.rule), one.rule),
            f" {one.severity}: {one.location}: expected {one.expected}, found {one.found}",
        )
        for one in collection.findings
    ]
    return [tag("h2", "Findings about the registry and several submissions"), tag("ul", rows)]
