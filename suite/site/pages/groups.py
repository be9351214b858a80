"""The pages of one workload, one system and one submitter: their results, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from suite.figures.results import Measured, figures
from suite.figures.svg import NARROW
from suite.log.units import quantity
from suite.site import parts
from suite.site.collect import Collection, Result
from suite.site.html import Html, Node, tag
from suite.site.shell import page

_LINKS = parts.Links("../")
_MOST_DRAWN = 30  # results in the figures of one section: the best


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """One page for each workload, system and submitter that has results."""
    for name, results in parts.grouped(collection.results, parts.known_workload).items():
        if name:
            yield f"workload/{name}.html", _workload(name, results)
    with_system = [one for one in collection.results if one.system]
    for name, results in parts.grouped(with_system, lambda one: one.system).items():
        yield f"system/{name}.html", _system(results)
    with_submitter = [one for one in collection.results if one.submitter]
    for name, results in parts.grouped(with_submitter, lambda one: one.submitter).items():
        yield f"submitter/{name}.html", _submitter(name, results)


def _workload(name: str, results: Sequence[Result]) -> str:
    """One section for each thing that is measured; within it, the highest score first."""
    body: list[Node] = [tag("p", "Workload", class_="kind"), tag("h1", name)]
    for number, (title, some) in enumerate(parts.grouped(results, _measured).items()):
        ordered = _by_score(some)
        body += [
            tag("h2", title),
            _drawn(ordered, f"scores-{number}"),
            parts.results_table(ordered, _LINKS, f"{title}: the best score first", quiet=True),
            parts.resources_table(ordered, _LINKS, "Use of the machine, means over soaks, windows and tail"),
        ]
    return page(name, body, depth=1)


def _drawn(results: Sequence[Result], ids: str) -> list[Html]:
    """The scores as figures, where there are several to compare."""
    known = [one for one in results if parts.value_of(parts.score(one)[0]) is not None]
    if len(known) < 2:
        return []
    name = "time_to_quality" if known[0].row.group[2] == "quality" else "throughput"
    across = parts.watermark_of(known[0])
    return plots_of(known[:_MOST_DRAWN], name, ids, across)


def plots_of(results: Sequence[Result], metric: str, ids: str, watermark: str) -> list[Html]:
    """The figures of a metric of many results, each for a wide screen and for a phone."""
    measured = [as_measured(one) for one in results]
    drawn = zip(figures(measured, metric), figures(measured, metric, NARROW), strict=True)
    return [
        parts.plot(wide, f"{ids}-{number}", watermark, narrow=narrow)
        for number, (wide, narrow) in enumerate(drawn)
    ]


def as_measured(result: Result) -> Measured:
    """A result as figures of many results take it."""
    division, data, mode = result.row.group
    return Measured(
        (division, str(parts.key_of(result, "scale")), data, mode),
        result.facts["settings"],
        result.row.status,
        result.row.why,
        result.row,
        {"throughput_per_s": _rates(result)},
        result.facts["code"],
    )


def _rates(result: Result) -> list[float]:
    """The throughput of each repeat that has one; a quality run and one without a score have none."""
    if result.row.group[2] == "quality":
        return []
    rates = (parts.rate_of(repeat) for repeat in result.facts.get("repeats", ()))
    return [rate for rate in rates if rate is not None]


def _measured(result: Result) -> str:
    """What a result measures, apart from framework, precision, batch and device."""
    scale, data = parts.key_of(result, "scale"), result.row.group[1]
    variant = parts.key_of(result, "variant") or parts.key_of(result, "storage")
    return ", ".join(
        str(part) for part in (parts.phase_of(result), variant, f"{scale} scale", f"{data} data") if part
    )


def _by_score(results: Sequence[Result]) -> list[Result]:
    """The highest throughput or the shortest time first; results without a score last."""

    def order(result: Result) -> tuple[bool, float, str]:
        value = parts.value_of(parts.score(result)[0])
        sign = 1 if result.row.group[2] == "quality" else -1
        return value is None, sign * (value or 0.0), result.digest

    return sorted(results, key=order)


def _system(results: Sequence[Result]) -> str:
    first = results[0]
    submitter = parts.link(_LINKS.to(f"submitter/{first.submitter}.html"), first.submitter)
    body = [
        tag("p", "System", class_="kind"),
        tag("h1", first.row.system),
        tag("p", "Submitted by ", submitter, class_="lead"),
        tag("h2", "Results"),
        parts.results_table(results, _LINKS, f"Results of {first.row.system}", quiet=True),
        tag("h2", "Use of the machine"),
        parts.resources_table(results, _LINKS, "Means over soaks, windows and telemetry tail"),
        data_sheet(first),
        _description(first),
    ]
    return page(first.row.system, body, depth=1)


def _description(result: Result) -> Node:
    """The system description that was submitted with the result."""
    described: dict[str, Any] = (result.facts["entry"] or {}).get("system") or {}
    rows = [
        (name.replace("_", " "), _described(name, value))
        for name, value in described.items()
        if value is not None and name not in ("format", "reasons")
    ]
    return [tag("h2", "Description by the submitter"), parts.definitions(rows)] if rows else None


def _described(name: str, value: Any) -> str:
    """One fact of a system description with its unit (rules/1.0/schemas/system.json)."""
    if isinstance(value, dict):
        return ", ".join(f"{part} {one}" for part, one in value.items())
    if type(value) is not int:
        return str(value)
    if name.endswith("_capacity"):
        return quantity(value, "bytes")
    if name.endswith("_frequency"):
        return f"{value} MHz"
    return f"{value / 1000:g} W" if name.endswith("_power_limit") else str(value)


def data_sheet(result: Result) -> Html:
    """The figures of the device's data sheet that the rules hold; nothing for an unknown device."""
    sheet = result.facts.get("sheet")
    if not sheet:
        return Html("")
    capacity = float(sheet["memory_bytes"][0])  # in a data sheet units are decimal
    rows = [
        *(
            (f"{name} peak, dense", f"{float(value) / 1e12:g} TFLOP/s")
            for name, value in sheet["flops"].items()
        ),
        ("memory bandwidth", f"{float(sheet['memory_bytes_per_s']) / 1e12:g} TB/s"),
        (
            "memory",
            f"{capacity / 1e9:g} GB ({capacity / 2**30:.0f} GiB)",
        ),
        ("power limit", f"{float(sheet['power_w']):g} W"),
    ]
    cells = [tag("tr", tag("th", name, scope="row"), tag("td", value, class_="n")) for name, value in rows]
    return tag(
        "section",
        tag("h2", "Data sheet of the device"),
        parts.table(["quantity", parts.head("value", numeric=True)], cells, f"{sheet['names'][0]}"),
        tag("p", f"Source: {sheet['source']}.", class_="note"),
    )


def _submitter(name: str, results: Sequence[Result]) -> str:
    systems = parts.grouped(results, lambda one: one.system)
    ways = [
        tag("li", parts.link(_LINKS.to(f"system/{each}.html"), some[0].row.system))
        for each, some in systems.items()
        if each
    ]
    body = [
        tag("p", "Submitter", class_="kind"),
        tag("h1", name),
        tag("h2", "Systems"),
        tag("ul", ways),
        tag("h2", "Results"),
        parts.results_table(results, _LINKS, f"Results of {name}"),
    ]
    return page(name, body, depth=1)
