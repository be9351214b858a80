"""Comparison of any results: one page whose script takes their digests from the address.

The data of all results is in the page, each distinct name and value once. Without JavaScript the page states
the command that compares.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import orjson

from suite.compare.comparable import MEANING
from suite.compare.compare import interleaved
from suite.log.safe import safe
from suite.log.units import significant
from suite.site import parts
from suite.site.collect import Collection, Result
from suite.site.html import tag
from suite.site.shell import data_block, page

_LONGEST = 200


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """The page of comparisons."""
    known = [
        one
        for one in collection.results
        if not one.struck and parts.value_of(parts.score(one)[0]) is not None
    ]
    body = [
        tag("h1", "Compare"),
        tag(
            "p",
            "Two or more results side by side: scores, ratios with 95 % intervals, and what differs.",
            class_="lead",
        ),
        tag("div", class_="needs-script", id="compare"),
        tag(
            "div",
            tag("h2", "On the command line"),
            tag("p", "The ratio of every metric of two results, and every difference between them:"),
            tag("pre", tag("code", "make compare A=<folder of a result> B=<folder of another>")),
            tag(
                "p",
                "Without JavaScript, this page cannot compare; the command needs none.",
                class_="without-script",
            ),
        ),
        data_block("results", _data(known)),
    ]
    yield "compare.html", page("Compare", body, current="compare.html")


def _data(results: list[Result]) -> dict[str, Any]:
    """Names, values and results as indices into them, which keeps a thousand results small."""
    names: dict[tuple[str, str], int] = {}
    values: dict[str, int] = {}
    rows = []
    groups: dict[tuple[str, bytes], list[int]] = {}  # most groups of facts occur in many results
    for result in results:
        facts: list[int] = []
        for group, members in result.facts["facts"].items():
            key = (group, orjson.dumps(members))
            if key not in groups:
                groups[key] = [
                    index
                    for name, value in members.items()
                    if value is not None
                    for index in (
                        names.setdefault((group, name), len(names)),
                        values.setdefault(str(value), len(values)),
                    )
                ]
            facts += groups[key]
        rows.append(_row(result, facts))
    return {
        "meaning": MEANING,
        "names": [[safe(part, _LONGEST) for part in name] for name in names],
        "values": [safe(value, _LONGEST) for value in values],
        "results": rows,
        "paired": _paired(results),
    }


def _paired(results: list[Result]) -> list[tuple[int, int]]:
    """The pairs of results, as indices, whose repeats ran interleaved, as `make ab` runs them."""
    times = [one.facts["compared"]["times"] for one in results]
    starts = sorted(
        (some[0]["boot"], some[0]["began_ns"], index)
        for index, some in enumerate(times)
        if len(some) > 1 and some[0]["boot"] is not None
    )
    pairs = []
    for boot, _, index in starts:
        # The other's first repeat runs between the first two of this result: few others can begin there.
        position = bisect_left(starts, (boot, times[index][0]["ended_ns"]))
        last = (boot, times[index][1]["began_ns"])
        while position < len(starts) and starts[position][:2] <= last:
            other = starts[position][2]
            if interleaved(results[index].facts["compared"], results[other].facts["compared"]):
                pairs.append((index, other))
            position += 1
    return pairs


def _row(result: Result, facts: list[int]) -> dict[str, Any]:
    value, low, high = parts.score(result)
    assert value is not None
    number = parts.value_of(value)
    assert number is not None
    ends = [parts.value_of(end) for end in (low, high)]
    compared = result.facts["compared"]
    return {
        "digest": result.digest,
        "title": safe(result.facts["title"], _LONGEST),
        "same": [safe(part) for part in compared["same"].values()],
        "speed": compared["metric"] == "throughput",
        "division": safe(result.row.group[0]),
        "rules": safe(result.row.rules),
        "value": number,
        "shown": f"{significant(number)} {value.unit}",
        "interval": "" if None in ends else " to ".join(significant(end) for end in ends if end is not None),
        "repeats": [float(f"{one:.12g}") for one in compared["repeats"]],
        "facts": facts,
    }
