"""Baselines of machines: a list by kind of machine, and a page for each with its figures and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from suite.compare.baseline_verdict import FAST, OK, SLOW, medians
from suite.figures.strips import Strip, strips
from suite.figures.svg import NARROW, WIDTH
from suite.log.units import count
from suite.report.baseline_text import AGAINST, notes, rate_text, rows, sentences
from suite.site import parts
from suite.site.baselines import CheckedBaseline
from suite.site.collect import Collection
from suite.site.html import Html, Node, tag
from suite.site.shell import page

FOOTER = (
    "Figures of baselines are computed from their windows. A baseline finds mistakes, not forgers: nobody "
    "has checked who measured it, or on what."
)
# Series that the list shows where a machine of the kind has them, in this order.
_LISTED = (
    *("cpu.gemm_fp32", "cpu.triad", "cpu.page_cache_read", "cpu.jpeg", "gpu0.gemm_bf16_plateau"),
    *("gpu0.copy", "gpu0.h2d", "disk.read"),
)
_BADGES = {OK: "accepted", SLOW: "rejected", FAST: "flagged"}
_MOST_SERIES = 400  # rows of a page: a host with eight GPUs has half of that
_MOST_NOTES = 100
_MOST_STRIPS = 40
_FEWEST_IN_STRIP = 3


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """The list, and one page for each baseline, named by the digest of its log."""
    kinds: dict[str, list[CheckedBaseline]] = {}
    for one in collection.baselines.checked:
        kinds.setdefault(str(one.baseline.cohort), []).append(one)
    about = (
        "A baseline measures a machine itself, without a network to train. It is compared with earlier "
        "baselines of its machine (self), with other machines of its kind (cohort), and the GPUs of one host "
        "with each other (siblings)."
    )
    body: list[Node] = [tag("h1", "Baselines"), tag("p", about, class_="lead")]
    for kind in sorted(kinds):
        body += [tag("h2", kind), _list(kind, kinds[kind])]
    if not kinds:
        body.append(tag("p", "There is no baseline here. ", tag("code", "make baseline"), " measures one."))
    if collection.baselines.left_out:
        lines = [tag("li", line) for line in collection.baselines.left_out[:_MOST_NOTES]]
        more = len(collection.baselines.left_out) - len(lines)
        lines += [tag("li", f"and {more:,} more")] if more else []
        body += [tag("h2", "Files that were left out"), tag("ul", lines)]
    yield "baselines.html", page("Baselines", body, current="baselines.html", footer=FOOTER)
    for kind, some in kinds.items():
        known = medians([one.baseline for one in some])
        for one in some:
            yield (
                f"baseline/{one.baseline.digest}.html",
                _page(one, kind, len(some) - 1, known),
            )


def _list(kind: str, some: Sequence[CheckedBaseline]) -> Html:
    """One row for each baseline of a kind, the newest first."""
    against = [name for name in AGAINST if any(name == each.against for one in some for each in one.verdicts)]
    listed = [name for name in _LISTED if any(name in one.baseline.series for one in some)]
    heads = [
        *("measured", "machine", *against),
        *(parts.head(name, numeric=True) for name in listed),
        "source",
    ]
    lines = []
    for one in some:
        series = one.baseline.series
        states = {each.against: each.state for each in one.verdicts}
        address = parts.Links().to(f"baseline/{one.baseline.digest}.html")
        lines.append(
            tag(
                "tr",
                tag("td", parts.link(address, _when(one)), " quick" if one.baseline.quick else None),
                tag("td", _machine(one)),
                [tag("td", _badge(states[name]) if name in states else parts.DASH) for name in against],
                [
                    tag("td", rate_text(series[name], series[name].rate), class_="n")
                    if name in series
                    else tag("td", parts.DASH, class_="n")
                    for name in listed
                ],
                tag("td", _source(one)),
            )
        )
    return parts.table(heads, lines, f"{count(len(some), 'baseline')} of {kind}", class_="results")


def _page(
    one: CheckedBaseline, kind: str, others: int, known: Mapping[tuple[str, str, str], Mapping[str, float]]
) -> str:
    baseline = one.baseline
    facts: list[tuple[str, Node]] = [
        ("measured", f"{baseline.when[:19].replace('T', ' ')} UTC{', quick' if baseline.quick else ''}"),
        ("machine", _machine(one)),
        ("other baselines of this kind", f"{others:,}"),
        ("suite", baseline.suite),
        ("SHA-256 of the log", baseline.digest),
        ("source", f"{_source(one)}: {_SOURCES[one.of_log]}"),
    ]
    body: list[Node] = [
        tag("p", "Machine baseline", class_="kind"),
        tag("h1", kind),
        tag("p", [_badge(each.state, each.against) for each in one.verdicts], class_="badges"),
        tag("h2", "Verdict"),
        tag("ul", [_verdict(sentences(each)) for each in one.verdicts]),
        tag("h2", "Figures"),
        *_strips(one, known),
        _figures(one),
    ]
    if lines := notes(baseline):
        more = len(lines) - _MOST_NOTES
        shown = [tag("li", line) for line in lines[:_MOST_NOTES]]
        shown += [tag("li", f"and {more:,} more")] if more > 0 else []
        body += [tag("h2", "Conditions, and what was not measured"), tag("ul", shown)]
    body += [tag("h2", "Source"), parts.definitions(facts)]
    return page(kind, body, depth=1, footer=FOOTER)


_SOURCES = {
    True: "its chain of digests, its checks and the number of its windows were verified",
    False: "its windows, without the log: the digest names the log, which is not here",
}


def _strips(one: CheckedBaseline, known: Mapping[tuple[str, str, str], Mapping[str, float]]) -> list[Node]:
    """Where each figure lies among the medians of other machines of the kind, which are in ``known``."""
    found = []
    for name, series in list(one.baseline.series.items())[:_MOST_STRIPS]:
        machines = known.get((name, series.unit, series.method), {})
        others = [rate for machine, rate in machines.items() if machine != one.baseline.machine]
        if len(others) >= _FEWEST_IN_STRIP:
            found.append(Strip(name, math.exp(series.log_rate), tuple(sorted(others))))
    about = "Higher is faster. Each machine counts once, with its median; only equal methods are compared."
    title = "This machine among other machines of its kind"
    wide, narrow = (strips(title, found, subtitle=about, width=width) for width in (WIDTH, NARROW))
    return [parts.plot(wide, "strips", narrow=narrow)] if found else []


def _verdict(lines: Sequence[str]) -> Html:
    """The sentence of one comparison, and beneath it one for each series that is slow or fast."""
    head, *of_series = lines
    shown = [tag("li", line.strip()) for line in of_series[:_MOST_NOTES]]
    return tag("li", head, tag("ul", shown) if shown else None)


def _figures(one: CheckedBaseline) -> list[Node]:
    """The figures with the state in each comparison; beneath, the windows and methods."""
    heads, *found = rows(one.baseline, one.verdicts)
    if not found:
        return [tag("p", "Nothing was measured.")]
    numeric = ("median", "deviation")
    lines = [
        tag(
            "tr",
            [
                tag("td", value, class_="n" if name in numeric else None)
                for name, value in zip(heads, row, strict=True)
            ],
        )
        for row in found[:_MOST_SERIES]
    ]
    windows = [
        tag(
            "tr",
            tag("td", name),
            tag("td", ", ".join(rate_text(series, rate) for rate in series.rates)),
            tag("td", series.method),
        )
        for name, series in list(one.baseline.series.items())[:_MOST_SERIES]
    ]
    columns = [parts.head(name, numeric=name in numeric) for name in heads]
    more = len(found) - _MOST_SERIES
    return [
        parts.table(columns, lines, "Median of the windows, their deviation, and the difference from others"),
        tag("p", f"{more:,} more series are not shown.", class_="note") if more > 0 else None,
        tag(
            "details",
            tag("summary", "Windows and methods"),
            parts.table(["series", "windows", "method"], windows, "Windows in their order", quiet=True),
        ),
    ]


def _badge(state: str, against: str = "") -> Html:
    return parts.badge(f"{against}: {state}" if against else state, _BADGES.get(state, "unknown"))


def _when(one: CheckedBaseline) -> str:
    return one.baseline.when[:16].replace("T", " ")


def _machine(one: CheckedBaseline) -> str:
    return one.baseline.machine[:12] if one.baseline.machine else "not identified"


def _source(one: CheckedBaseline) -> str:
    return "log" if one.of_log else "shared file"
