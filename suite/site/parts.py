"""Parts that several pages share: badges, numbers, tables of results, addresses of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from suite.compare.result_row import OOM
from suite.contract import CONVERSION, INDEPENDENT
from suite.figures.results import watermark
from suite.figures.svg import Figure
from suite.log.units import count, quantity, significant
from suite.metrics.metric import Metric
from suite.site.collect import Result
from suite.site.html import Html, Node, join, tag, text, trusted
from suite.workloads import names as workload_names

_SHORT = 32  # characters that a cell shows in full
_NAME = 20  # characters of a name in the first column
DASH = "–"
LEVELS = {
    "L0": "L0 · rules pass",
    "L1": "L1 · signed",
    "L2": "L2 · nonce and receipt",
    "L3": "L3 · repeated by an auditor",
    "L4": "L4 · attested by hardware",
}
RESOURCES = (
    ("gpu_utilisation_percent", "GPU utilisation\u00a0/\u00a0%"),
    ("gpu_memory_controller_percent", "memory controller\u00a0/\u00a0%"),
    ("gpu_memory_used_bytes", "GPU memory used\u00a0/\u00a0GiB"),
    ("gpu_power_w", "GPU power\u00a0/\u00a0W"),
    ("cpu_percent", "host CPU\u00a0/\u00a0%"),
    ("host_memory_bytes", "host memory\u00a0/\u00a0GiB"),
    ("disk_read_mb_per_s", "disk reads\u00a0/\u00a0MB/s"),
)


@dataclass(frozen=True)
class Links:
    """Addresses of pages from a page in a folder (``up`` is "../") or at the top; None in a report."""

    up: str = ""
    site: bool = True

    def to(self, address: str) -> str | None:
        """The address of one page of the site."""
        return self.up + address if self.site else None

    def result(self, digest: str) -> str | None:
        """The page of the result with this digest of its log."""
        return self.to(f"r/{digest}.html")

    def rule(self, identifier: str) -> str | None:
        """The rule in the page of the rules."""
        return self.to(f"rules.html#{identifier}")


def link(address: str | None, *children: Node, **attributes: str | None) -> Html:
    """A link, or its text alone where there is no address."""
    return tag("a", *children, href=address, **attributes) if address else join(*children)


def badge(words: str, kind: str, title: str | None = None) -> Html:
    """A badge in words; its colour only repeats them."""
    return tag("span", words, class_=f"badge {kind}", title=title)


def division_badge(result: Result) -> Html:
    """The division of a result."""
    division = result.row.group[0]
    return badge(division, division if division in ("closed", "open", "practice") else "unknown")


def level_badge(result: Result) -> Html | str:
    """The assurance level of an accepted result."""
    return badge(result.level, "level", LEVELS.get(result.level)) if result.level else DASH


def status_badge(result: Result) -> Html:
    """Whether the result is withdrawn or the checker accepts it; a rejected one names its first rule."""
    if result.withdrawal is not None:
        return badge("withdrawn", "rejected")
    if result.rejected:
        rule = next(one.rule for one in result.findings if one.severity == "reject")
        return badge(f"rejected {rule}", "rejected")
    flags = sum(one.severity == "flag" for one in result.findings)
    if result.row.status in ("accepted", "flagged"):
        return badge(
            f"accepted, {count(flags, 'flag')}" if flags else "accepted", "flagged" if flags else "accepted"
        )
    known = {OOM: "out of memory"}
    return badge(known.get(result.row.status, result.row.status), "flagged")


def score(result: Result) -> tuple[Metric | None, Metric | None, Metric | None]:
    """(score, low, high): throughput, or the time to quality, which has no interval."""
    metrics = result.row.metrics
    if result.struck:
        return None, None, None
    if result.row.group[2] == "quality":
        return metrics.get("time_to_quality_s"), None, None
    names = ("throughput_per_s", "throughput_low_per_s", "throughput_high_per_s")
    value, low, high = (metrics.get(name) for name in names)
    return value, low, high


def rate_of(repeat: Mapping[str, Any]) -> float | None:
    """Units per second of one of the repeats of a result's facts; None without a window or units."""
    units, window_ns = repeat["units"], repeat["window_ns"]
    return 1e9 * units / window_ns if units and window_ns else None


def watermark_of(result: Result) -> str:
    """The text across the figures of a result; empty unless it is practice."""
    return watermark(result.row.group[0])


def value_of(metric: Metric | None) -> float | None:
    """The value of a metric that may be missing."""
    return None if metric is None or metric.value is None else float(metric.value)


def number(
    metric: Metric | None, name: str, scale: float = 1.0, limit: int = 200, label: str | None = None
) -> Html:
    """A cell with one number at four significant digits; a missing one states why in its title.

    ``label`` is as of :func:`cell`.
    """
    value = value_of(metric)
    if value is None:
        why = metric.reason if metric is not None and metric.reason else "not measured"
        shown, sort = tag("span", DASH, title=why[:limit]), None
    else:
        shown, sort = text(significant(value / scale)), repr(value)
    return tag("td", shown, class_="n", data_sort=sort, data_metric=name, data_label=label)


def scale_of(name: str) -> float:
    """The divisor of a metric in a table: bytes are shown in GiB."""
    return float(1 << 30) if name.endswith("_bytes") else 1.0


def shown(metric: Metric) -> str:
    """One value with its unit, or why there is none."""
    return f"not measured: {metric.reason}" if metric.value is None else quantity(metric.value, metric.unit)


def table(
    heads: Sequence[Node],
    rows: Iterable[Node],
    caption: str,
    *,
    quiet: bool = False,
    **attributes: str | bool | None,
) -> Html:
    """A table that scrolls sideways by itself on a narrow screen, also with the keyboard.

    ``quiet``: only screen readers get the caption, because a heading says the same.
    """
    body = tag("tbody", rows)
    head = tag("thead", tag("tr", [one if _is_cell(one) else tag("th", one, scope="col") for one in heads]))
    title = tag("caption", caption, class_="quiet" if quiet else None)
    made = tag("table", title, head, body, **attributes)
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def plot(
    figure: Figure, ids: str, watermark: str = "", *, narrow: Figure | None = None, numbers: bool = True
) -> Html:
    """A figure with the table of its numbers beneath, if ``numbers``.

    ``narrow``: the same figure of the width NARROW (:mod:`suite.figures.svg`), which a phone shows instead:
    text keeps its size, and nothing is beyond the edge. A figure without one must be as narrow itself.
    """
    boxes = [_drawing(figure, ids, watermark, "drawing" if narrow is None else "drawing wide")]
    if narrow is not None:
        boxes.append(_drawing(narrow, f"{ids}-narrow", watermark, "drawing narrow"))
    if not numbers:
        return tag("figure", boxes, class_="plot")
    rows = [
        tag("tr", [tag("td", value, class_="n" if index else None) for index, value in enumerate(row)])
        for row in figure.table.rows
    ]
    heads = [head(name, numeric=index > 0) for index, name in enumerate(figure.table.headings)]
    shown = tag("details", tag("summary", "Numbers"), table(heads, rows, figure.title, quiet=True))
    return tag("figure", boxes, shown, class_="plot")


def _drawing(figure: Figure, ids: str, watermark: str, kind: str) -> Html:
    drawn = trusted(figure.with_watermark(watermark).inline(ids))
    return tag("div", drawn, class_=kind)


def _is_cell(node: Node) -> bool:
    return isinstance(node, Html) and node.startswith("<th")


def head(label: str, *, numeric: bool = False, filtered: str = "") -> Html:
    """The heading of a column: sortable, and the source of a filter where ``filtered`` names one."""
    return tag("th", label, scope="col", class_="n" if numeric else None, data_filter=filtered or None)


def cell(value: Any, *, numeric: bool = False, sort: Any = None, label: str | None = None) -> Html:
    """One cell of text; nothing is shown as a dash, and what is long is cut by the style sheet.

    ``label``: what stands before the value where a row is shown as a card, without the heading of its column.
    """
    shown = DASH if value in (None, "") else str(value)
    # Short ASCII needs neither a limit of its width nor isolation of its direction, which slow a large table.
    plain = shown == DASH or (len(shown) <= _SHORT and shown.isascii())
    kind = "n" if numeric else None if plain else "long"
    return tag("td", shown, class_=kind, data_sort=None if sort is None else repr(sort), data_label=label)


def definitions(rows: Iterable[tuple[str, Node]]) -> Html:
    """Names with their values."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows])


def key_of(result: Result, name: str) -> Any:
    """One field of what a result measured."""
    return result.row.key.get(name)


def batch_of(result: Result) -> Any:
    """The batch per device, or the images per shard of a conversion."""
    return result.row.key.get("batch_per_device", result.row.key.get("images_per_shard"))


def phase_of(result: Result) -> str:
    """Train or infer with a scenario other than offline, or conversion; with the mode of a quality run.

    On several devices without an exchange each trains a model of its own: ``train independent``.
    """
    if result.row.group[2] == CONVERSION:
        return "conversion"
    phase, scenario = key_of(result, "phase"), key_of(result, "scenario")
    if phase is None:
        return ""
    if scenario not in (None, "offline"):
        return f"{phase} {scenario}".replace("_", " ")
    if phase == "train" and key_of(result, "strategy") == INDEPENDENT and key_of(result, "devices") != 1:
        return "train independent"
    return f"{phase} to quality" if result.row.group[2] == "quality" else str(phase)


def date_of(result: Result) -> str:
    """The day on which the run started."""
    return str(result.facts.get("when", ""))[:10]


def device_of(result: Result) -> str:
    """The device of a result, in words."""
    return result.row.device or "unknown"


def kept(result: Result, name: str, make: Callable[[], Html]) -> Html:
    """The part ``name`` of a page, as it was made of ``result`` before; made now if it was not.

    It may depend on the result alone: a build keeps it for the next one.
    """
    if name not in result.made:
        result.made[name] = make()
    return trusted(result.made[name])


def results_table(
    results: Sequence[Result],
    links: Links,
    caption: str,
    *,
    filters: bool = False,
    index: bool = False,
    quiet: bool = False,
) -> Html:
    """One row per result; the script adds filters with ``filters``, and boxes to compare in the ``index``."""
    heads = [
        head("workload", filtered="workload"),
        head("framework", filtered="framework"),
        head("phase", filtered="phase"),
        head("precision", filtered="precision"),
        head("batch", numeric=True),
        head("devices", numeric=True, filtered="devices"),
        head("device", filtered="device"),
        head("score", numeric=True),
        head("unit"),
        head("95 % interval", numeric=True),
        head("status"),
        head("division", filtered="division"),
        head("level"),
        head("data"),
        head("date"),
        head("submitter"),
    ]
    part = f"row {links.to('')}"
    rows = [kept(result, part, partial(result_row, result, links)) for result in results]
    return table(
        heads,
        rows,
        caption,
        quiet=quiet,
        class_="cards results",
        data_filters=filters or index,
        data_compare=index,
    )


def result_row(result: Result, links: Links) -> Html:
    """One row of :func:`results_table`."""
    value, low, high = score(result)
    unit = value.unit if value is not None and value.value is not None else result.row.missing_score
    scale = key_of(result, "scale")
    name = str(key_of(result, "workload") or result.row.run_id)
    shown = link(links.result(result.digest), text(name, _NAME))
    cells = [
        tag("td", shown, class_=None if name.isascii() else "long"),
        cell(key_of(result, "framework")),
        cell(phase_of(result)),
        cell(key_of(result, "precision")),
        cell(batch_of(result), numeric=True, sort=batch_of(result), label="batch"),
        cell(key_of(result, "devices"), numeric=True, sort=key_of(result, "devices"), label="devices"),
        cell(device_of(result)),
        number(value, "score"),
        cell(unit if unit != OOM else "out of memory"),
        interval(low, high, "95 % interval"),
        tag("td", status_badge(result)),
        tag("td", division_badge(result), f" {scale} scale" if scale == "mini" else None),
        tag("td", level_badge(result)),
        cell(result.row.group[1]),
        tag("td", date_of(result) or DASH, class_="whole"),
        cell(result.row.submitter),
    ]
    return tag("tr", cells, data_digest=result.digest, class_="gone" if result.struck else None)


def interval(low: Metric | None, high: Metric | None, label: str | None = None) -> Html:
    """The 95 % interval of a score; ``label`` is as of :func:`cell`."""
    first, last = value_of(low), value_of(high)
    if first is None or last is None:
        return tag("td", DASH, class_="n", data_label=label)
    shown = f"{significant(first)} – {significant(last)}"
    return tag("td", shown, class_="n range", data_sort=repr(first), data_label=label)


def resources_table(results: Sequence[Result], links: Links, caption: str) -> Html:
    """What each result used of its machine: the columns of a study of frameworks on one device."""
    shown_results = [one for one in results if one.facts.get("resources") and not one.struck]
    if not shown_results:
        return Html("")
    columns = [
        one
        for one in RESOURCES
        if any(result.facts["resources"][one[0]]["value"] is not None for result in shown_results)
    ]
    heads = [
        *(head(name) for name in ("workload", "framework", "phase", "precision")),
        head("batch", numeric=True),
        head("device"),
        *(head(label, numeric=True) for _, label in columns),
    ]
    names = [name for name, _ in columns]
    part = f"resources {links.to('')} {' '.join(names)}"
    rows = [kept(result, part, partial(_resources_row, result, links, names)) for result in shown_results]
    return table(heads, rows, caption, class_="cards resources")


def _resources_row(result: Result, links: Links, columns: Sequence[str]) -> Html:
    metrics = {name: Metric(**value) for name, value in result.facts["resources"].items()}
    labels = dict(RESOURCES)
    return tag(
        "tr",
        tag("td", link(links.result(result.digest), str(key_of(result, "workload") or DASH))),
        cell(key_of(result, "framework")),
        cell(phase_of(result)),
        cell(key_of(result, "precision")),
        cell(batch_of(result), numeric=True, sort=batch_of(result), label="batch"),
        cell(device_of(result)),
        [number(metrics.get(name), name, scale_of(name), label=labels[name]) for name in columns],
    )


def known_workload(result: Result) -> str:
    """The workload's name if this version of the suite knows it; empty otherwise."""
    name = key_of(result, "workload")
    return str(name) if name in workload_names() else ""


def grouped(results: Iterable[Result], key: Callable[[Result], Any]) -> dict[Any, list[Result]]:
    """The results by ``key``, in order of the keys."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return dict(sorted(groups.items(), key=lambda item: str(item[0])))
