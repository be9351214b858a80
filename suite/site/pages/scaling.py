"""Scaling sets: one list, and a page for each set with what each step to more devices costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from suite.compare.scaling import CheckedSet
from suite.compare.scaling_figures import GroupFigures
from suite.compare.scaling_set import SINGLE
from suite.figures.scaling import scaling
from suite.figures.svg import NARROW
from suite.log.units import count, quantity
from suite.report import scaling_table
from suite.site import parts
from suite.site.collect import Collection, ScalingResult
from suite.site.html import Html, Node, tag
from suite.site.shell import page

_HEADS = (
    "workload",
    "framework",
    "phase",
    "device",
    "scaling, batch",
    parts.head("one device", numeric=True),
)


def pages(collection: Collection) -> Iterator[tuple[str, str]]:
    """The list, and one page for each set, named by the digest of its file."""
    links = parts.Links()
    dates = {result.digest: parts.date_of(result) for result in collection.results}
    newest_first = sorted(collection.sets, key=lambda one: _date(one, dates), reverse=True)
    numbers = sorted({group.devices for one in collection.sets for group in _accepted(one)})
    rows = [_row(one, numbers, _date(one, dates), links) for one in sorted(newest_first, key=_title)]
    about = (
        "A scaling set compares N devices with one: scaling efficiency is X(N) / (N · X(1)), with its 95 % "
        "interval where the set has several rounds."
    )
    body = [
        tag("h1", "Scaling"),
        tag("p", about, class_="lead"),
        parts.table(
            [
                *_HEADS,
                *(parts.head(f"{number} devices", numeric=True) for number in numbers),
                "status",
                "date",
            ],
            rows,
            "Scaling sets",
            class_="cards sets",
        )
        if rows
        else tag(
            "p", "There is no scaling set among these results. ", tag("code", "make scale"), " measures one."
        ),
    ]
    yield "scaling.html", page("Scaling", body, current="scaling.html")
    for one in collection.sets:
        yield f"scaling/{one.digest}.html", _page(one)


def _title(one: ScalingResult) -> str:
    return one.name if one.checked is None else scaling_table.heading(one.checked)


def _date(one: ScalingResult, dates: Mapping[str, str]) -> str:
    """The day of the set's first run among the results."""
    if one.checked is None:
        return ""
    arms = [arm for group in one.checked.set.groups for arm in group.arms.values()]
    return min((dates[arm.sha256] for arm in arms if arm.sha256 in dates), default="")


def _accepted(one: ScalingResult) -> list[GroupFigures]:
    """The groups that no finding rejects."""
    checked = one.checked
    return [] if checked is None else [each for each in checked.figures if each.devices in checked.accepted]


def _row(one: ScalingResult, numbers: Sequence[int], date: str, links: parts.Links) -> Html:
    """What the set measured, and its scaling efficiency on each of ``numbers`` devices."""
    address = links.to(f"scaling/{one.digest}.html")
    end = [tag("td", parts.badge(*_status(one), one.verdict.reached)), parts.cell(date)]
    arm = None if one.checked is None else scaling_table.first_arm(one.checked)
    if one.checked is None or arm is None:
        blank = [parts.cell("") for _ in range(len(_HEADS) - 1 + len(numbers))]
        return tag("tr", tag("td", parts.link(address, _title(one))), blank, end)
    found, key, efficiency = one.checked.set, arm["key"], {each.devices: each for each in _accepted(one)}
    good = next((each.arms[SINGLE] for each in efficiency.values()), None)
    return tag(
        "tr",
        tag("td", parts.link(address, found.workload)),
        [parts.cell(part) for part in (found.framework, f"{found.phase}, {key['precision']}", arm["device"])],
        parts.cell(f"{found.scaling}, {scaling_table.batch(one.checked)}"),
        parts.cell(
            "" if good is None else quantity(good["per_second"], f"{good['unit']}/s"),
            numeric=True,
            label="one device",
        ),
        [
            parts.cell(
                _share(one.checked, efficiency[number]) if number in efficiency else "",
                numeric=True,
                label=f"{number} devices",
            )
            for number in numbers
        ],
        end,
    )


def _share(checked: CheckedSet, group: GroupFigures) -> str:
    """The scaling efficiency of a group, with a remark if only a declared cause lets it pass."""
    remark = f", {scaling_table.BY_CAUSE}" if group.devices in checked.explained else ""
    return scaling_table.share(group.efficiency) + remark


def _status(one: ScalingResult) -> tuple[str, str]:
    """The words of the badge, and its kind."""
    if not one.verdict.accepted:
        return "rejected", "rejected"
    flags = len(one.verdict.flags)
    return (f"accepted, {count(flags, 'flag')}", "flagged") if flags else ("accepted", "accepted")


def _page(one: ScalingResult) -> str:
    body: list[Node] = [
        tag("p", "Scaling set", class_="kind"),
        tag("h1", _title(one)),
        tag("p", parts.badge(*_status(one)), class_="badges"),
    ]
    if one.checked is not None:
        if one.checked.figures:
            narrow = scaling(one.checked, NARROW)
            body.append(parts.plot(scaling(one.checked), "scaling", narrow=narrow))
        heads, rows = scaling_table.cells(one.checked)
        body.append(
            parts.table(
                heads, [tag("tr", [tag("td", value) for value in row]) for row in rows], "Groups of the set"
            )
        )
        body.append(tag("ul", [tag("li", line) for line in scaling_table.table_notes(one.checked)]))
    if one.verdict.findings:
        links = parts.Links("../")
        heads = ("rule", "severity", "location", "expected", "found", "fix")
        found_rows = [
            tag(
                "tr", tag("td", parts.link(links.rule(found.rule), found.rule)), tag("td", found.severity),
                [tag("td", part) for part in (found.location, found.expected, found.found, found.fix)],
            )
            for found in one.verdict.findings
        ]  # fmt: skip
        body += [tag("h2", "Findings"), parts.table(heads, found_rows, "Findings")]
    return page(_title(one), body, depth=1)
