"""The advice as blocks of text or Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from suite.advice.advise import EXTRAPOLATED, MEASURED, UNKNOWN, Advisor, Row, best_batches, verdict_of
from suite.advice.cells import Group
from suite.advice.goal import EPOCH, Goal
from suite.advice.prices import Prices
from suite.advice.report import (
    Answer,
    data_sheet,
    epoch_units_of,
    fewest_devices,
    pivot,
    title_of,
)
from suite.compare.result_row import OOM
from suite.log.units import count, quantity, significant
from suite.report.compare_text import Block, Heading, TextLine, TextTable

_MOST_ROWS = 30
_MILLION = 1e6
_PER_MILLION = "1M"

Advised = Sequence[tuple[Advisor, Sequence[Row]]]


def blocks(
    advised: Advised, goal: Goal | None, epoch: float | None, prices: Prices | None
) -> Iterator[Block]:
    """Tables of every group: what its model is, its configurations and machines, its pivot."""
    if prices is not None:
        yield TextLine(
            f"prices: {count(len(prices.machines), 'machine')}, {prices.currency} per hour, retrieved "
            f"{prices.oldest} or later from {', '.join(prices.sources)}; SHA-256 {prices.digest}"
        )
    for advisor, rows in advised:
        yield Heading(title_of(advisor.group))
        yield TextLine(model_text(advisor))
        units = epoch_units_of(advisor, epoch)
        shown = rows if prices is None else [row for row in rows if row.machine is not None]
        if prices is not None and not shown:
            which = "is without accelerators" if advisor.group.processor else f"has {advisor.group.device}"
            yield TextLine(f"no machine of the price file {which}; the table has the measured ones")
            shown = rows
        elif prices is not None:
            others = len(prices.machines) - len({row.machine.name for row in shown if row.machine})
            if others:
                yield TextLine(f"left out: {count(others, 'machine')} of the price file with other devices")
        best = best_batches(shown, goal, units)
        yield from _table(advisor.group, best, goal, units, prices)
        yield from _remarks(advisor, shown, best)
        yield from _pivot(advisor, rows)
        yield from _per_watt(advisor.group)


def model_text(advisor: Advisor) -> str:
    """The cells of the model, its error on cells that were held out, and the coverage of its intervals."""
    measured, failed = len(advisor.timed), len(advisor.failed)
    cells = count(measured, "cell") + (f" and {failed} out of memory" if failed else "")
    if advisor.model is None:
        why = "too few for a prediction" if measured else advisor.no_model
        return f"model: {cells}, {why}: only measured configurations have a number"
    model = advisor.model
    if others := len(advisor.points) - len({advisor.group.point(one.config) for one in advisor.timed}):
        cells += f" and {others} of other loaders"
    own = model.values_of(advisor.group.loader)
    values = ", ".join(parameter_text(name, value, model.loaders[0]) for name, value in own.items())
    if model.form == "local":
        values += ", corrected by near cells"
    return (
        f"model: {cells}; {values}; cells that were held out are off by {100 * model.held_out_error:.1f} % "
        f"(median); intervals of predictions cover {100 * model.coverage:.0f} %, "
        "of cells with several repeats 95 %"
    )


def parameter_text(name: str, value: float, first: str) -> str:
    """A parameter of the model in words, with its letter in the formula; ``first``: the loader with g = 1."""
    if name == "u":
        return f"the device's process takes {value:.2g} of a processor (u)"
    letter, _, of = name.partition(".")
    loader = f"the loader {of}" if of else "this loader"
    if letter == "g":
        return f"with {loader} the device takes {value:.3g} times as long as with {first} (g)"
    sample = f"sample of {loader}" if of else "sample"
    words = {
        "a": "a step takes", "b": "each sample", "c": f"processors work on each {sample} for",
        "h": "each doubling of the threads costs a step", "e": "an exchange of gradients",
    }  # fmt: skip
    text = words.get(letter, f"the disk needs for each sample with a {of} cache")
    return f"{text} {quantity(value * 1e3 if value > 1e-12 else 0.0, 'ms')} ({letter})"


def _table(
    group: Group, rows: Sequence[Row], goal: Goal | None, units: float | None, prices: Prices | None
) -> Iterator[Block]:
    """One row for each machine, or for each number of processors, devices, memory and page cache."""
    by_size = sorted(rows, key=lambda row: (row.machine.price if row.machine else 0.0, row.size))
    of_caches = len({row.config.cache for row in by_size}) > 1
    per = "epoch" if units else f"{_PER_MILLION} {group.unit}"
    work = units or _MILLION
    heads = ["machine"] if prices is not None else []
    of_devices = any(row.config.devices > 1 for row in by_size)
    of_memory = prices is not None or len({row.config.memory_bytes for row in by_size}) > 1
    heads += ["cpus", *(["devices"] if of_devices else []), *(["GiB"] if of_memory else [])]
    heads += ["batch", f"{group.unit}/s"]
    heads += ["interval", "basis", "limit"]
    heads += ["cache"] if of_caches else []
    # With prices the cost of an epoch says what its time says.
    of_epochs = bool(units) and (prices is None or (goal is not None and goal.name == EPOCH))
    heads += ["s/epoch"] if of_epochs else []
    heads += [f"{prices.currency}/h", f"{prices.currency}/{per}"] if prices is not None else []
    heads += [f"kJ/{per}"] if any(row.joules_per_unit for row in by_size) else []
    heads += ["goal"] if goal is not None else []
    lines = []
    for row in by_size[:_MOST_ROWS]:
        config, rate = row.config, row.per_second
        cells = ([row.machine.name if row.machine else "-"]) if prices is not None else []
        cells += [f"{config.cpus:g}", *([str(config.devices)] if of_devices else [])]
        gib = f"{config.memory_bytes / (1 << 30):.4g}" if config.memory_bytes else "-"
        # What is not known is not known of any batch of the row.
        cells += [*([gib] if of_memory else []), "-" if row.source == UNKNOWN else str(config.batch)]
        cells += [significant(rate) if rate else "-", _interval(row), row.source, row.binds or "-"]
        cells += [config.cache] if of_caches else []
        cells += [significant(units / rate) if rate and units else "-"] if of_epochs else []
        if prices is not None:
            cost = row.cost(work, rate)
            cells += [f"{row.machine.price:.4g}" if row.machine else "-", f"{cost:.4g}" if cost else "-"]
        if f"kJ/{per}" in heads:
            cells += [significant(row.joules_per_unit * work / 1e3) if row.joules_per_unit else "-"]
        if goal is not None:
            cells += [_goal(row, goal, units)]
        lines.append(tuple(cells))
    yield TextTable(tuple(heads), tuple(lines))
    if len(by_size) > _MOST_ROWS:
        yield TextLine(f"{len(by_size) - _MOST_ROWS} more rows: FORMAT=json has all")


def _remarks(advisor: Advisor, rows: Sequence[Row], best: Sequence[Row]) -> Iterator[Block]:
    group = advisor.group
    # That there is no model was said above the table.
    whys = dict.fromkeys(f"{row.source}: {row.why}" for row in rows if row.why not in ("", advisor.no_model))
    for why in list(whys)[:5]:
        yield TextLine(why)
    if group.key["data"] == "synthetic":
        yield TextLine("synthetic data: nothing is read or decoded; with DATA=real the host may limit")
    if any(row.source == EXTRAPOLATED for row in best):
        yield TextLine("extrapolated: outside of what was measured; its interval is twice as wide")
    energies = {cell.no_energy for cell in group.cells if cell.step_s is not None and cell.no_energy}
    for why in sorted(energies)[:1]:
        if not group.processor:
            yield TextLine(f"energy: null: {why}")
    counted = {cell.energy_from for cell in group.cells if cell.energy_from}
    for what in sorted(counted)[:2]:
        yield TextLine(f"energy: {what}")


def _pivot(advisor: Advisor, rows: Sequence[Row]) -> Iterator[Block]:
    """Batch by devices, with the fewest devices that hold a global batch where one is not enough."""
    table = pivot(rows)
    devices = sorted({number for by_devices in table.values() for number in by_devices})
    if len(table) < 2 or (len(devices) < 2 and not advisor.failed):
        return
    if not any(row.per_second for by_devices in table.values() for row in by_devices.values()):
        return
    yield TextLine(f"{advisor.group.unit}/s over batch and devices, with the most processors:")
    heads = ("batch per device", *(count(number, "device") for number in devices))
    lines = []
    for batch, by_devices in table.items():
        found = [by_devices.get(number) for number in devices]
        lines.append((str(batch), *(_pivot_cell(row) for row in found)))
    yield TextTable(heads, tuple(lines))
    for size, fewest in fewest_devices(table).items():
        yield TextLine(f"global batch {size}: at least {count(fewest, 'device')}")


def _pivot_cell(row: Row | None) -> str:
    if row is None or (row.per_second is None and row.source != OOM):
        return "-"
    if row.per_second is None:
        return OOM
    return significant(row.per_second) + ("" if row.source == MEASURED else f" ({row.source})")


def _per_watt(group: Group) -> Iterator[Block]:
    """Work per energy of the most efficient measured cell, beside the data sheet of the device."""
    best = max((cell for cell in group.cells if cell.joules_per_unit), key=_per_joule, default=None)
    if best is None or best.per_second is None:
        return
    # No power: the energy may be that of untimed steps, which take longer than those of the window.
    most = f"{significant(_per_joule(best))} {group.unit}/J"
    text = f"most work per energy: {most} at batch {best.config.batch}"
    sheet = data_sheet(group)
    if sheet is not None:
        text += f"; data sheet: {sheet['power_w']:.0f} W"
        if sheet["flop_per_s"]:
            text += f", {sheet['flop_per_s'] / 1e12:.4g} TFLOP/s {group.key['precision']}"
        text += f", {sheet['memory_bytes_per_s'] / 1e12:.3g} TB/s"
    yield TextLine(text)


def _per_joule(cell: Any) -> float:
    return 1 / float(cell.joules_per_unit)


def sentences(lines: Sequence[str]) -> list[Block]:
    """Each line as a block."""
    return [TextLine(line) for line in lines]


def answer_lines(answer: Answer, goal: Goal | None, epoch: float | None, prices: Prices | None) -> list[str]:
    """The answer in sentences."""
    lines = []
    small, cheap = answer.smallest, answer.cheapest
    if goal is not None and answer.problem:
        lines.append(f"{goal.text} {answer.problem}")
    elif goal is not None and small is None:
        lines.append(f"no configuration surely reaches {goal.text}")
        if answer.closest is not None:
            sentence = _sentence(answer.closest, goal, epoch, prices)
            lines.append(f"smallest whose rate is at least 99 % of it: {sentence}")
        if not answer.next_cells:
            lines.append("none of them can: name others with GRID=, or another goal")
    elif goal is not None and small is not None:
        one = cheap is not None and cheap[1] is small[1]
        both = [("smallest and cheapest" if one else "smallest", small)]
        both += [] if one or cheap is None else [("cheapest", cheap)]
        lines += [
            f"{name} that reaches {goal.text}: {_sentence(row, goal, epoch, prices)}" for name, row in both
        ]
    if answer.why_next:
        lines.append(f"measure next: {answer.why_next}")
    return lines


def _sentence(found: tuple[Advisor, Row], goal: Goal, epoch: float | None, prices: Prices | None) -> str:
    advisor, row = found
    config, group = row.config, advisor.group
    name = (
        f"{row.machine.name} ({prices.currency} {row.machine.price:.4g}/h): "
        if row.machine and prices
        else ""
    )
    cpus = f"{config.cpus:g} processor{'' if config.cpus == 1 else 's'}"
    parts = [f"{cpus}, {count(config.devices, 'device')}, batch {config.batch}"]
    parts += [f"loader {group.key['loader']}"] if group.key.get("loader") not in (None, "native") else []
    parts += [f"{config.cache} page cache"] if config.cache != "warm" else []
    if row.host_memory_bytes and row.machine is None:
        most = "used" if row.source == MEASURED else "at most"
        parts.append(f"{most} {quantity(row.host_memory_bytes, 'bytes')} of host memory")
    rate = f"{significant(row.per_second or 0)} {group.unit}/s ({_interval(row)})"
    units = epoch_units_of(advisor, epoch)
    if goal.name == EPOCH and units and row.per_second:
        rate += f", {significant(units / row.per_second)} s for an epoch"
    cost = row.cost(units or _MILLION, row.per_second)
    if cost is not None and prices is not None:
        per = "an epoch" if units else f"{_PER_MILLION} {group.unit}"
        rate += f", {prices.currency} {cost:.4g} for {per}"
    where = f"in {group.key['framework']} on {group.device}"
    return f"{name}{', '.join(parts)} {where}: {rate}, {row.source}, limited by {row.binds}"


def _interval(row: Row) -> str:
    if row.low is None or row.high is None:
        return "-"
    return f"{_short(row.low)}-{_short(row.high)}"


def _short(value: float) -> str:
    """Four significant digits; thousands as k, millions as M."""
    for suffix, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.4g}"


def _goal(row: Row, goal: Goal, units: float | None) -> str:
    if goal.least_rate(units, row.machine.price if row.machine else None) is None:
        return "-"  # the units of an epoch or the price are not known
    verdict = verdict_of(row, goal, units)
    return "yes" if verdict.surely else "maybe" if verdict.possibly else "no"


def to_json(
    advised: Advised, answer_groups: Sequence[tuple[Advised, Answer]], goal: Goal | None, epoch: float | None,
    prices: Prices | None,
) -> dict[str, Any]:  # fmt: skip
    """All rows of all groups with their digests of logs, and the answers; JSON values."""
    return {
        "goal": None if goal is None else goal.text,
        "prices": None
        if prices is None
        else {
            "sha256": prices.digest,
            "currency": prices.currency,
            "oldest": str(prices.oldest),
            "sources": list(prices.sources),
        },
        "groups": [_group_json(advisor, rows, goal, epoch) for advisor, rows in advised],
        "answers": [
            {
                "groups": [title_of(advisor.group) for advisor, _ in some],
                "smallest": _found_json(answer.smallest, epoch),
                "cheapest": _found_json(answer.cheapest, epoch),
                "closest": _found_json(answer.closest, epoch),
                "measure_next": list(answer.next_commands),
                "why": answer.why_next or None,
                "problem": answer.problem or None,
            }
            for some, answer in answer_groups
        ],
    }


def _group_json(
    advisor: Advisor, rows: Sequence[Row], goal: Goal | None, epoch: float | None
) -> dict[str, Any]:
    group, model = advisor.group, advisor.model
    return {
        "title": title_of(group),
        "key": group.key,
        "device": group.device,
        "unit": group.unit,
        "epoch_units": epoch_units_of(advisor, epoch),
        "data_sheet": data_sheet(group),
        "logs": sorted({digest for cell in group.cells for digest in cell.logs}),
        "model": None
        if model is None
        else {
            "cells": len(model.points),
            "form": model.form,
            "parameters": model.values,
            "held_out_error": model.held_out_error,
            "coverage": model.coverage,
        },
        "no_model": advisor.no_model or None,
        "rows": [_row_json(advisor, row, goal, epoch) for row in rows],
    }


def _row_json(advisor: Advisor, row: Row, goal: Goal | None, epoch: float | None) -> dict[str, Any]:
    units = epoch_units_of(advisor, epoch)
    energy = row.joules_per_unit
    reasons = {}
    if energy is None:
        cell = advisor.measured(row.config)
        reasons["joules_per_unit"] = (cell.no_energy if cell else "") or "energy is not predicted"
    if row.per_second is None:
        reasons["per_second"] = row.why
    if row.machine is None:
        reasons["cost"] = "not a machine of a price file"
    elif units is None:
        reasons["cost"] = "the units of an epoch are not known: EPOCH= gives them"
    return {
        **asdict(row.config),
        "machine": None if row.machine is None else asdict(row.machine),
        "source": row.source,
        "per_second": row.per_second,
        "low": row.low,
        "high": row.high,
        "binds": row.binds or None,
        "epoch_s": units / row.per_second if units and row.per_second else None,
        "cost": row.cost(units, row.per_second) if units else None,
        "joules_per_unit": energy,
        "joules_per_epoch": energy * units if energy and units else None,
        "host_memory_bytes": row.host_memory_bytes,
        "goal": None if goal is None else _goal(row, goal, units),
        "run_ids": list(row.run_ids),
        "reasons": reasons,
    }


def _found_json(found: tuple[Advisor, Row] | None, epoch: float | None) -> dict[str, Any] | None:
    if found is None:
        return None
    advisor, row = found
    return {"group": title_of(advisor.group), **_row_json(advisor, row, None, epoch)}
