"""The page of one result: score, evidence, repeats, steps, telemetry, resources, settings, environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suite.audit.quote import sentence
from suite.log.finding import Finding
from suite.log.safe import safe
from suite.log.units import significant
from suite.metrics.metric import Metric
from suite.site import parts
from suite.site.collect import Result
from suite.site.html import Html, Node, tag, text
from suite.site.pages.groups import data_sheet
from suite.site.pages.result_figures import curve, repeats, steps, telemetry
from suite.site.parts import Links
from suite.site.shell import page

_LONG = 4000  # characters of a sentence or a command that are shown
_ORDER = {"reject": 0, "flag": 1, "info": 2}
_TILES = (
    ("step_p50_ms", "median step time"),
    ("step_p99_ms", "99th percentile of step time"),
    ("cv_percent", "CV of the repeats"),
    ("gpu_power_w", "power of a GPU"),
)
_METRICS = (
    ("step_mean_ms", "mean step time"),
    ("step_p50_ms", "median step time"),
    ("step_p90_ms", "90th percentile of step time"),
    ("step_p99_ms", "99th percentile of step time"),
    ("cv_percent", "CV of the repeats"),
    ("loss_first", "loss before training"),
    ("loss_last", "loss after training"),
    ("quality", "quality"),
    ("quality_target", "quality target"),
    ("time_to_quality_s", "time to quality"),
    ("files_read_mb_per_s", "files read"),
    ("shards_written_mb_per_s", "shards written"),
    ("batches_delivered_mb_per_s", "batches delivered"),
    ("peak_host_memory_bytes", "peak host memory"),
    ("peak_device_memory_bytes", "peak device memory"),
    ("cpu_worker_cores", "processor cores used by the ranks"),
    ("cpu_host_cores", "processor cores used in all"),
    ("cpu_throttled_percent", "processors throttled"),
    ("gpu_utilisation_percent", "GPU utilisation"),
    ("jpeg_engine_percent", "JPEG engine of a GPU in use"),
    ("gpu_power_w", "power of a GPU"),
    ("gpu_sm_clock_mhz", "SM clock"),
    ("gpu_temperature_c", "GPU temperature"),
    ("gpu_throttled_percent", "GPU throttled by heat or power brake"),
    ("energy_devices_j_per_unit", "energy of the accelerators"),
    ("energy_node_j_per_unit", "energy of processors and memory"),
    ("input_wait_percent", "waiting for input"),
    ("drift_percent", "drift of the step time"),
    ("anonymous_growth_bytes", "growth of anonymous memory"),
    ("page_cache_growth_bytes", "growth of the page cache"),
    ("setup_s", "set-up"),
    ("compile_s", "compilation"),
)


def result_page(result: Result, *, site: bool = True) -> str:
    """The page of ``result``; as a report (``site`` False) it stands alone and has no links."""
    links = Links("../", site)
    watermark = result.row.group[0] == "practice"
    return page(_name(result), body(result, links), depth=1, watermark=watermark, site=site)


def _name(result: Result) -> str:
    key = result.row.key
    parts_of_name = (key.get("workload"), key.get("framework"), parts.phase_of(result), key.get("precision"))
    return safe(" · ".join(str(part) for part in parts_of_name if part) or result.row.run_id)


def body(result: Result, links: Links) -> list[Node]:
    """The sections of the page."""
    details = result.details()
    sections: list[Node] = [
        tag("p", "Result", class_="kind"),
        tag("h1", _name(result), class_="struck" if result.struck else None),
        tag("p", str(result.facts.get("title") or result.row.why), class_="lead"),
        _badges(result),
        _withdrawal(result),
        _score(result),
    ]
    scored = not result.struck and result.facts["audit"]["scored"]
    if scored:
        sections += [
            _quotable(result, links),
            repeats(result),
            curve(result, details),
            steps(result, details),
            telemetry(result, details),
            _metrics(result),
            _resources(result),
            data_sheet(result),
        ]
    return [
        *sections,
        _evidence(result, links),
        _settings(result),
        _environment(details),
        _replay(result, links),
    ]


def _badges(result: Result) -> Html:
    rules = f"rules {result.row.rules}" if result.row.rules else "rules unknown"
    level = parts.badge(parts.LEVELS.get(result.level, result.level), "level") if result.level else None
    return tag(
        "p",
        [
            [one, " "]
            for one in (
                parts.status_badge(result),
                parts.division_badge(result),
                level,
                parts.badge(rules, "info"),
            )
            if one
        ],
        class_="badges",
    )


def _withdrawal(result: Result) -> Node:
    """When, by whom and why the result was withdrawn."""
    found = result.withdrawal
    if found is None:
        return None
    when = f"{found.withdrawn_at[:10]} {found.withdrawn_at[11:19]} UTC"
    words = f"Withdrawn on {when} by its submitter, {found.submitter}: "
    return tag("p", words, text(found.reason), class_="callout")


def _score(result: Result) -> Node:
    """The score in large digits with its interval, and a few numbers beside it."""
    value, low, high = parts.score(result)
    number = parts.value_of(value)
    if value is None or number is None:
        if result.withdrawal is not None:  # which is stated above
            return None
        why = f"No score: {result.row.why or result.facts['audit']['why_no_quote']}"
        return tag("p", why, class_="callout")
    first, last = parts.value_of(low), parts.value_of(high)
    ends = (
        f"95 % interval {significant(first)} to {significant(last)}"
        if first is not None and last is not None
        else (low.reason if low is not None else "")
    )
    tiles = [
        tag("div", tag("dt", label), tag("dd", parts.shown(metric), data_metric=name), class_="tile")
        for name, label in _TILES
        if (metric := result.row.metrics.get(name)) is not None and metric.value is not None
    ]
    main = tag(
        "div",
        tag("dt", "time to quality" if result.row.group[2] == "quality" else "throughput"),
        tag("dd", tag("span", significant(number), class_="big", data_metric="score"), " ", value.unit),
        tag("dd", ends, class_="note") if ends else None,
        class_="tile main",
    )
    return tag("dl", main, tiles, class_="tiles")


def _quotable(result: Result, links: Links) -> Node:
    """The one sentence that may be published about the result, or the command that prints it."""
    fields = result.facts["audit"]["quote"]
    if fields is not None and not links.site:
        rest = " compares this result with all submissions, and prints the sentence that may be published."
        return tag("p", [tag("code", "make quote RESULT=…"), rest])
    if fields is None or result.level is None:
        return None
    fields = {**fields, "level": result.level}
    return tag(
        "figure",
        tag("blockquote", text(sentence(fields), _LONG)),
        tag("figcaption", "The sentence that may be published"),
        class_="quote",
    )


def _metrics(result: Result) -> Html:
    rows = [
        _metric_row(label, name, result.row.metrics[name])
        for name, label in _METRICS
        if name in result.row.metrics
    ]
    heads = ["metric", parts.head("value", numeric=True), "how it was measured"]
    return tag("section", tag("h2", "Metrics"), parts.table(heads, rows, "All metrics of the run"))


def _metric_row(label: str, name: str, metric: Metric) -> Html:
    known = metric.value is not None
    value = tag("td", parts.shown(metric) if known else parts.DASH, class_="n", data_metric=name)
    note = metric.note if known else f"not measured: {metric.reason}"
    return tag("tr", tag("th", label, scope="row"), value, tag("td", note, class_="note"))


def _resources(result: Result) -> Node:
    """What the run used of its machine, beside the data sheet of its device."""
    metrics = {name: Metric(**value) for name, value in result.facts.get("resources", {}).items()}
    if not metrics:
        return None
    sheet = result.facts.get("sheet") or {}
    limits = {"gpu_power_w": ("power_w", "W", 1.0), "gpu_memory_used_bytes": ("memory_bytes", "GB", 1e9)}
    rows = []
    for name, label in parts.RESOURCES:
        metric, share = metrics[name], ""
        if name in limits and sheet and metric.value is not None:
            field, unit, scale = limits[name]
            limit = float(sheet[field][0] if isinstance(sheet[field], list) else sheet[field])
            share = f"{100 * metric.value / limit:.3g} % of {limit / scale:g} {unit}"
        note = metric.note if metric.value is not None else f"not measured: {metric.reason}"
        cells = [tag("th", label, scope="row"), parts.number(metric, name, parts.scale_of(name))]
        rows.append(tag("tr", cells, tag("td", share), tag("td", note, class_="note")))
    heads = ["quantity", parts.head("mean", numeric=True), "of the data sheet", "how it was measured"]
    ranks = f"ranks: {result.row.ranks}" if result.row.ranks else ""
    lines_of_text = (result.facts.get("why"), ranks, result.facts.get("time"))
    notes = [tag("p", f"{line[:1].upper()}{line[1:]}.", class_="note") for line in lines_of_text if line]
    table = parts.table(heads, rows, "Means over soaks, windows and telemetry tail")
    return tag("section", tag("h2", "Use of the machine"), table, notes)


def _evidence(result: Result, links: Links) -> Node:
    """What the rules found, and what the level rests on."""
    audit = result.facts["audit"]
    outcomes = ", ".join(
        f"{number} {name}"
        for name, number in sorted(result.facts["outcomes"].items(), key=lambda one: -one[1])
    )
    rows: list[tuple[str, Node]] = [
        ("SHA-256 of the log", tag("code", result.digest if audit["sha256"] else "the log cannot be read"))
    ]
    if outcomes:
        rows.append(("Rules", outcomes))
    if result.level:
        rows.append(("Assurance level", parts.LEVELS.get(result.level, result.level)))
        if audit["missing"]:
            rows.append(("Missing for the next level", audit["missing"].replace("`", "")))
    if result.row.submitter:
        rows.append(
            (
                "Submitter",
                parts.link(
                    links.to(f"submitter/{result.submitter}.html") if result.submitter else None,
                    result.row.submitter,
                ),
            )
        )
        rows.append(
            (
                "System",
                parts.link(
                    links.to(f"system/{result.system}.html") if result.system else None, result.row.system
                ),
            )
        )
    if parts.known_workload(result):
        name = parts.known_workload(result)
        rows.append(("Workload", parts.link(links.to(f"workload/{name}.html"), name)))
    found = sorted(result.findings, key=lambda one: _ORDER.get(one.severity, 3))
    return tag(
        "section",
        tag("h2", "Evidence"),
        parts.definitions(rows),
        _findings(found, links) if found else tag("p", "The rules have no finding about this result."),
    )


def _findings(findings: Sequence[Finding], links: Links) -> Html:
    kinds = {"reject": "rejected", "flag": "flagged"}
    rows = [
        tag(
            "tr",
            tag("td", parts.link(links.rule(one.rule), one.rule)),
            tag("td", parts.badge(one.severity, kinds.get(one.severity, "info"))),
            [tag("td", text(part, 400)) for part in (one.location, one.expected, one.found, one.fix)],
        )
        for one in findings
    ]
    return parts.table(
        ["rule", "severity", "location", "expected", "found", "fix"], rows, "Findings of the rules"
    )


def _settings(result: Result) -> Node:
    facts = result.facts.get("facts")
    if not facts:
        return None
    declared = [
        tag("tr", tag("td", str(one["rule"])), tag("td", str(one["reason"])))
        for one in result.facts["differences"]
    ]
    return tag(
        "section",
        tag("h2", "Settings"),
        parts.table(["rule", "declared difference"], declared, "Declared differences from closed")
        if declared
        else None,
        [_group(name, values, opened=index < 3) for index, (name, values) in enumerate(facts.items())],
    )


def _group(name: str, values: Mapping[str, Any], *, opened: bool = False) -> Node:
    shown = {key: value for key, value in values.items() if value is not None}
    if not shown:
        return None
    words = {"True": "yes", "False": "no", "": parts.DASH}
    rows = [(key, words.get(str(value), str(value))) for key, value in shown.items()]
    return tag("details", tag("summary", name), parts.definitions(rows), open=opened)


def _environment(details: Mapping[str, Any]) -> Node:
    groups = details.get("environment")
    if not groups:
        return None
    return tag("section", tag("h2", "Environment"), [_group(name, values) for name, values in groups.items()])


def _replay(result: Result, links: Links) -> Node:
    """How to run it again, and where the log is."""
    overrides = [str(one) for one in result.facts.get("overrides", ())]
    if not result.facts.get("title"):
        return None
    commands = [
        tag("p", "Run a repeat again from the log alone, and compare item by item:"),
        tag("pre", tag("code", "make audit-replay RESULT=<folder of this result>")),
    ]
    if overrides:
        commands += [
            tag("p", "The run was started with:"),
            tag("pre", tag("code", text("python -m suite run " + " ".join(overrides), _LONG))),
        ]
    raw = links.to(f"log/{result.digest}.txt") if result.facts["audit"]["sha256"] else None
    files = tag("p", parts.link(raw, "The log as it was written (JSON lines)")) if raw else None
    return tag("section", tag("h2", "Replay"), commands, files)
