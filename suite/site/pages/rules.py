"""The run rules by area, from the data that the checker uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from suite.compare import scaling
from suite.rules import LATEST, load
from suite.rules.root import VERSIONS
from suite.site import parts
from suite.site.collect import Collection
from suite.site.html import Html, Node, tag
from suite.site.shell import page
from suite.submissions import rule_table


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """One page; findings link to its rules."""
    del collection  # the rules are the same whatever the results are
    rules = load(LATEST)
    table: dict[str, Mapping[str, str]] = {
        name: {"severity": check.severity, "title": check.title, "fix": check.fix}
        for name, check in rules.checks.items()
    }
    table |= rule_table.rules()
    table |= scaling.rules()
    areas: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for name, row in sorted(table.items()):
        areas.setdefault(name.split("-")[0], []).append((name, row))
    body: list[Node] = [
        tag("h1", "Rules"),
        tag(
            "p",
            f"Version {LATEST}: {len(table)} rules. A log is judged by the version that it names.",
            class_="lead",
        ),
        tag(
            "p",
            "reject: no score. flag: accepted, for an auditor to look at. info: information only.",
            class_="note",
        ),
        tag("p", _practice(), class_="note"),
        tag("p", [[parts.link(f"#{area}", area), " "] for area in areas], class_="ways"),
    ]
    for area, members in areas.items():
        heads = ["rule", "severity", "what must hold", "fix"]
        body += [
            tag("h2", area, id=area),
            parts.table(heads, [_row(*one) for one in members], f"Rules {area}", quiet=True),
        ]
    yield "rules.html", page("Rules", body, current="rules.html")


def _practice() -> str:
    others = [version for version in VERSIONS if version != LATEST]
    texts = []
    for version in others:
        known = load(version).checks
        lenient = sum(known[name].severity == "info" for name in known) - sum(
            check.severity == "info" for check in load(LATEST).checks.values()
        )
        texts.append(
            f"Version {version}, for mini scale, is based on {LATEST}; {lenient} rules are information only."
        )
    return " ".join(texts)


def _row(name: str, row: Mapping[str, str]) -> Html:
    kind = {"reject": "rejected", "flag": "flagged"}.get(row["severity"], "info")
    return tag(
        "tr",
        tag("th", name, scope="row", id=name),
        tag("td", parts.badge(row["severity"], kind)),
        tag("td", row["title"]),
        tag("td", row["fix"]),
    )
