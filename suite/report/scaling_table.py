"""The table of a scaling set as text, Markdown and JSON: one row per arm, with what each step costs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from suite.compare.ratio import Ratio
from suite.compare.scaling import FORMAT, CheckedSet
from suite.compare.scaling_figures import GroupFigures
from suite.compare.scaling_set import INDEPENDENT, SINGLE, SYNCHRONOUS, WEAK
from suite.log.units import quantity, significant
from suite.metrics.metric import Metric
from suite.report.cells import aligned, escaped, markdown_table

_LONGEST = 300
_HEADS = ("devices", "arm", "batch", "throughput", "of N x single", "lost to", "SM clock", "power", "notes")
_WIDE = _HEADS.index("SM clock")  # the columns that a narrow terminal gets as lines
ON_PROCESSORS = (
    "Ranks on a CPU share its cores: these numbers show that the ranks work, and nothing about scaling."
)
BY_CAUSE = "above the limit, by a declared cause"
_ONE_ROUND = "no intervals: the set has one round, and an interval needs two or more (REPEATS)"


def heading(checked: CheckedSet) -> str:
    """One line: what was measured, on which device, weak or strong."""
    found, arm = checked.set, first_arm(checked)
    text = f"{found.workload} in {found.framework}, {found.phase}"
    if arm is not None:
        key = arm["key"]
        size = f"{key['variant']}, {key['precision']}, {key['scale']} scale"
        text += f", {size}, {key['data']} data, {arm['device']}"
    return f"{text}: {found.scaling} scaling, batch {batch(checked)}"


def batch(checked: CheckedSet) -> str:
    """The batch of the set, and of what: each device, or all of them."""
    return f"{checked.set.batch:,} {'per device' if checked.set.scaling == WEAK else 'in all'}"


def notes(checked: CheckedSet) -> list[str]:
    """What a reader of the table must know, one sentence each."""
    arm = first_arm(checked)
    lines = [_ONE_ROUND]
    if all(one.efficiency.freedom for one in checked.figures):
        lines = ["intervals: 95 %, Student's t over the rounds, whose repeats are paired"]
    if checked.set.scaling != WEAK:
        lines.append("contention includes what the smaller batch per device costs")
    if checked.set.cause is not None:
        lines.append(f"declared cause of an efficiency above the limit: {checked.set.cause}")
    if checked.figures and SYNCHRONOUS in checked.figures[0].arms:
        exchange = checked.figures[0].arms[SYNCHRONOUS]["exchange"]
        lines.append(f"the synchronous ranks exchange gradients by {exchange}")
    if arm is not None and not arm["on_gpus"]:
        lines.append(ON_PROCESSORS)
    return lines


def first_arm(checked: CheckedSet) -> Any:
    """The single device of the first group; None where no group has all arms."""
    return checked.figures[0].arms[SINGLE] if checked.figures else None


def _rows(checked: CheckedSet) -> Iterator[list[str]]:
    figures = {one.devices: one for one in checked.figures}
    groups = {group.devices: group for group in checked.set.groups}
    for devices in checked.set.devices:
        if devices in figures:
            yield from _group_rows(figures[devices], _status(checked, devices))
            continue
        if (group := groups.get(devices)) is None:
            why = "not measured"
        elif group.failure is None:
            why = "a run is rejected or missing"
        else:
            why = f"exit code {group.failure.exit_code}: {group.failure.message}"
        yield [str(devices), "no figures", "", "", "", "", "", "", why]


def _status(checked: CheckedSet, devices: int) -> str:
    """What a reader must know of a group with figures; empty if nothing."""
    if devices not in checked.accepted:
        return "REJECTED"
    return BY_CAUSE if devices in checked.explained else ""


def _group_rows(one: GroupFigures, status: str) -> Iterator[list[str]]:
    lost = {
        INDEPENDENT: ("contention", one.contention),
        SYNCHRONOUS: ("synchronisation", one.synchronisation),
    }
    remarks = {SINGLE: status, INDEPENDENT: _slowest(one.slowest)}
    remarks[SYNCHRONOUS] = _bandwidth(one.bandwidth)
    for name, arm in one.arms.items():
        cause, loss = lost.get(name, ("", None))
        yield [
            str(arm["key"]["devices"]),
            name,
            str(arm["key"]["batch"]),
            f"{significant(arm['per_second'])} {arm['unit']}/s",
            share(one.shares.get(name)),
            f"{cause} {share(loss)}".strip(),
            *(_short(Metric(**metric)) for metric in arm["of_gpus"].values()),
            remarks[name],
        ]


def share(ratio: Ratio | None) -> str:
    """A share with its 95 % interval, if it has one."""
    if ratio is None:
        return ""
    interval = f" [{100 * ratio.low:.1f}, {100 * ratio.high:.1f}]" if ratio.freedom else ""
    return percent(ratio.value) + interval


def percent(share: float) -> str:
    """A share as the table states it, such as 97.9 %."""
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # + 0.0: no negative zero


def _short(metric: Metric) -> str:
    return "null" if metric.value is None else quantity(float(metric.value), metric.unit)


def _slowest(slowest: Metric) -> str:
    if slowest.value is None:
        return ""
    return f"slowest {slowest.note}: {float(slowest.value):.1f} % behind the fastest"


def _bandwidth(bandwidth: Metric) -> str:
    if bandwidth.value is None:
        return f"bus bandwidth null: {bandwidth.reason}"
    return f"bus bandwidth {float(bandwidth.value) / 1e9:.3g} GB/s {bandwidth.note}"


def cells(checked: CheckedSet) -> tuple[Sequence[str], list[list[str]]]:
    """The headings and the rows of the table as text, not escaped."""
    return _HEADS, list(_rows(checked))


def to_text(checked: CheckedSet, width: int | None = None) -> str:
    """The table for a terminal of ``width`` columns, of which too many become lines below; None: no limit."""
    rows, below = [list(_HEADS), *_rows(checked)], table_notes(checked)
    if width is not None and max(map(len, aligned(rows, _LONGEST))) > width:
        rest = [(f"{row[0]} {row[1]}", ", ".join(filter(None, row[_WIDE:]))) for row in rows[1:]]
        below = [*(f"{arm}: {text}" for arm, text in rest if text), *below]
        rows = [row[:_WIDE] for row in rows]
    lines = aligned([[heading(checked)]], _LONGEST, width)
    lines += aligned(rows, _LONGEST, width)
    lines += aligned([[line] for line in below], _LONGEST, width)
    return "\n".join(lines) + "\n"


def to_markdown(checked: CheckedSet) -> str:
    """The table as Markdown."""
    lines = [f"**{escaped(heading(checked), _LONGEST)}**", ""]
    lines += markdown_table(_HEADS, _rows(checked), _LONGEST)
    lines += ["", *(f"- {escaped(line, _LONGEST)}" for line in table_notes(checked))]
    return "\n".join(lines) + "\n"


def table_notes(checked: CheckedSet) -> list[str]:
    """:func:`notes`, and why clocks or power in the table are null."""
    arms = [arm for one in checked.figures for arm in one.arms.values()]
    reasons = {
        f"SM clock or power null: {metric['reason']}"
        for arm in arms
        for metric in arm["of_gpus"].values()
        if metric["value"] is None
    }
    return [*notes(checked), *sorted(reasons)]


def to_json(checked: CheckedSet) -> str:
    """JSON: every figure as computed; missing ones are null with a reason."""
    found, groups = checked.set, []
    for one in checked.figures:
        arms = {
            name: {
                **{
                    field: arm[field]
                    for field in ("run_id", "sha256", "per_second", "unit", "threads", "sweep")
                },
                "batch_per_device": arm["key"]["batch"],
                "strategy": arm["key"]["strategy"],
                **{field: _metric(Metric(**value)) for field, value in arm["of_gpus"].items()},
            }
            for name, arm in one.arms.items()
        }
        groups.append(
            {
                "devices": one.devices,
                "accepted": one.devices in checked.accepted,
                "above_limit_by_cause": one.devices in checked.explained,
                "efficiency": _ratio(one.efficiency),
                "contention": _ratio(one.contention),
                "synchronisation_cost": None if one.synchronisation is None else _ratio(one.synchronisation),
                "bus_bandwidth": _metric(one.bandwidth),
                "slowest_rank": _metric(one.slowest),
                "arms": arms,
            }
        )
    value = {
        "format": FORMAT,
        "workload": found.workload,
        "framework": found.framework,
        "phase": found.phase,
        "scaling": found.scaling,
        "batch": found.batch,
        "devices": list(found.devices),
        "cause": found.cause,
        "notes": notes(checked),
        "groups": groups,
        "verdict": checked.verdict.as_dict(),
    }
    return json.dumps(value, indent=2) + "\n"


def _ratio(ratio: Ratio) -> dict[str, Any]:
    if not ratio.freedom:
        return {"value": ratio.value, "low": None, "high": None, "reason": _ONE_ROUND}
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high}


def _metric(metric: Metric) -> dict[str, Any]:
    fields = {"value": metric.value, "unit": metric.unit, "note": metric.note, "reason": metric.reason}
    return {name: value for name, value in fields.items() if value or name == "value"}


WRITERS = {"text": to_text, "md": to_markdown, "json": to_json}
