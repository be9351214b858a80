"""The rules that compare the throughput and energy of a result with reference results: REG-014 to REG-016.

A consistent forgery passes every rule about one log. What nobody else reaches on such a device stands out.
Reference results are those that the registry's references.json names by the digest of the log: measured by
the project, or replayed by an auditor. No other result changes what the rules expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from suite.checker.context import Context
from suite.checker.physics import window_bytes, window_flop
from suite.contract import CONVERSION, LOAD
from suite.log.model import Record
from suite.metrics.energy import DEVICES, energy_per_unit
from suite.metrics.machine import at
from suite.rules import LATEST, load
from suite.rules.lookalikes import folded
from suite.submissions.registry.model import Breach, Registry

if TYPE_CHECKING:
    from suite.submissions.registry.traces import Trace

# A device with lower limits than the reference's may be used better, up to this share of them (provisional).
_USED = 0.25
_WIDTH = {"fp32": 1.0, "tf32": 1.0, "bf16": 0.5, "fp16": 0.5}


@dataclass(frozen=True, slots=True)
class Figure:
    """The throughput of a result, and what the devices need at least for a unit of its work."""

    work: str  # the fields of the benchmark key that must be equal
    framework: str
    data: str
    precision: str
    device: str  # the kind: a name of the device table, or as the log states it
    processor: bool
    devices: int
    rate: float  # units per second and device; of all processors together, as of loads and conversions
    unit: str
    flop_s: float | None  # seconds per unit at the device's peak rates; None where they are unknown
    byte_s: float | None
    closed: bool
    joules: float | None = None  # per unit, of all devices by their energy counters; None where unknown

    def least_s(self) -> tuple[float | None, float | None]:
        """Seconds per unit by FLOP and by bytes."""
        return self.flop_s, self.byte_s


def figure_of(record: Record) -> Figure | None:
    """The figure of an accepted result; None without a throughput, and at mini scale."""
    rules = load(str(record.header["rules"]["version"]))
    c = Context(record.header.data, rules, record)
    windows = sum(repeat.window_ns or 0 for repeat in c.repeats)
    if c.mode != "throughput" or not c.reference or not windows:
        return None
    units = sum(int(repeat.end["units"]) for repeat in c.repeats if repeat.end is not None)
    processor = _on_processor(c)
    parts = 1 if processor else c.key.devices
    least = _least_s(c, units / len(c.repeats), parts) if record.computes else (None, None)
    return Figure(
        work=_work(c),
        framework=c.subject.framework,
        data=_data(c),
        precision=c.key.precision if c.conversion is None else "",
        device=_kind(c),
        processor=processor,
        devices=parts,
        rate=units / (windows / 1e9) / parts,
        unit=c.spec.UNIT,
        flop_s=least[0],
        byte_s=least[1],
        closed=c.division == "closed",
        joules=energy_per_unit(record, DEVICES, c.spec.UNIT).metric.value if record.computes else None,
    )


def _least_s(c: Context, per_window: float, parts: int) -> tuple[float | None, float | None]:
    """Seconds per unit of a benchmark at the peak rates of one of ``parts`` devices, by FLOP and by bytes."""
    key = c.key
    # Activations, which window_bytes() leaves out, are as wide as the precision: all bytes count as such.
    moved = window_bytes(replace(key, precision="fp32")) * _WIDTH[key.precision]
    flop, moves = (
        None if peak is None else amount / per_window / (peak / parts)
        for amount, peak in zip((window_flop(key), moved), c.peaks, strict=True)
    )
    return flop, moves


def _work(c: Context) -> str:
    """What must be equal: of the benchmark key; of a load also its reader; of a conversion what it makes."""
    if c.conversion is not None:
        made = c.conversion
        fields = [made.workload, CONVERSION, made.storage, made.encoding, f"shards of {made.batch}"]
    else:
        key = c.key
        fields = [key.workload, key.variant, key.phase, key.scenario, f"batch {key.batch}"]
        if c.kind == LOAD:
            fields += [f"loader {c.header['loader']}", f"from {c.header['settings'].get('storage')}"]
    return ", ".join(fields)


def _data(c: Context) -> str:
    if c.conversion is None and c.key.data == "synthetic":
        return c.key.data
    return f"real, cache {c.subject.cache}"


def _on_processor(c: Context) -> bool:
    """Whether the processors decide the rate: also that of loads and conversions beside a GPU."""
    return c.on_processor or not c.record.computes


def _kind(c: Context) -> str:
    if c.device is not None and c.record.computes:
        return str(c.device["names"][0])
    outside = c.repeats[0].envs_of("outside")[0]["facts"]
    if _on_processor(c):
        return f"{c.cores} cores of {at(outside, 'cpu.model')}"
    listed = at(outside, "accelerators.devices")
    first = listed[0] if isinstance(listed, list) and listed else None
    named = [folded(str(found)) for name in ("name", "pci_device") if (found := at(first, name))]
    return f"unlisted device {' '.join(named) or 'without a name'}"


def population_breaches(traces: Iterable[Trace], registry: Registry) -> Iterator[Breach]:
    """Results whose throughput is far above, or energy far below that of the reference results.

    Also those that have none to compare with.
    """
    known = [trace for trace in traces if trace.figure is not None and not trace.rejected]
    references: dict[str, list[Trace]] = {}
    for trace in known:
        if _is_reference(trace, registry) and trace.figure is not None:
            references.setdefault(trace.figure.work, []).append(trace)
    limits = load(LATEST)
    for trace in known:
        figure = trace.figure
        if figure is None or _is_reference(trace, registry):
            continue
        yield from _energy_breaches(trace.location, figure, references.get(figure.work, ()))
        rows = _comparable(figure, references.get(figure.work, ()))
        where = f"{trace.location}, throughput"
        rate = f"{figure.rate:.6g} {figure.unit}s/s"
        per = "" if figure.processor else " per device"
        if not rows:
            wanted = f"a reference result of {figure.work}, {figure.data}"
            yield Breach("REG-015", where, wanted, f"none to compare {rate}{per} with")
            continue
        bound, scale, best = max(rows, key=lambda row: row[0])
        of = best.figure
        assert of is not None
        alike = of.framework == figure.framework
        over = limits.limit("population_over" if alike else "population_over_framework")
        if figure.rate <= over * bound:
            continue
        scaled = f" times {scale:.3g} for {figure.device}, {figure.precision}" if _other(figure, of) else ""
        wanted = (
            f"at most {over:g} times {of.rate:.6g} {of.unit}s/s{per} of {best.location} ({of.device}, "
            f"{of.precision}){scaled}, the highest of {len(rows)} reference results"
        )
        if figure.closed:
            wanted += "; or a replay (L3), which closed needs above that"
        found = f"{rate}{per}, {figure.rate / bound:.2f} times"
        yield Breach("REG-014", where, wanted, found, severity="reject" if figure.closed else None)


def _energy_breaches(location: str, figure: Figure, references: Sequence[Trace]) -> Iterator[Breach]:
    """Energy per unit far below the lowest of the reference results with equal key, devices and framework."""
    equal = ("framework", "data", "precision", "device", "devices")
    rows = [
        (trace.figure.joules, trace.location)
        for trace in references
        if trace.figure is not None
        and trace.figure.joules is not None
        and all(getattr(trace.figure, name) == getattr(figure, name) for name in equal)
    ]
    over = load(LATEST).limit("population_energy_over")
    if rows and figure.joules is not None and figure.joules * over < min(rows)[0]:
        least, best = min(rows)
        wanted = (
            f"at least 1/{over:g} of {least:.4g} J per {figure.unit} of {best}, the lowest of {len(rows)} "
            "reference results"
        )
        found = f"{figure.joules:.4g} J, {figure.joules / least:.2f} times"
        yield Breach("REG-016", f"{location}, energy of the devices", wanted, found)


def _is_reference(trace: Trace, registry: Registry) -> bool:
    one = registry.references.get(trace.digest)
    named = one is not None and (one.run_id, one.submitter) == (trace.run_id, trace.submitter)
    return named and trace.digest not in registry.withdrawals


def _other(figure: Figure, of: Figure) -> bool:
    """Whether devices or precisions differ, so that the reference must be scaled."""
    return (figure.device, figure.precision) != (of.device, of.precision)


def _comparable(figure: Figure, references: Sequence[Trace]) -> list[tuple[float, float, Trace]]:
    """(bound, scale, reference) of the reference results that are closest to ``figure``.

    Closest are those of equal device, precision and data; then those of equal device; then all. Of each kind
    those of the same framework come first, because frameworks differ honestly. Data that are
    read are no faster than synthetic ones, more devices no faster per device than fewer, and a GPU is not
    compared with processors.
    """
    found: dict[int, list[tuple[float, float, Trace]]] = {}
    for trace in references:
        of = trace.figure
        if of is None or of.data not in (figure.data, "synthetic") or of.devices > figure.devices:
            continue
        scale = _scale(figure, of) if _other(figure, of) else 1.0
        if scale is None or (of.processor and not figure.processor):
            continue
        equal = of.device == figure.device
        same = equal and (of.precision, of.data) == (figure.precision, figure.data)
        distance = 2 * (0 if same else 2 - equal) + (of.framework != figure.framework)
        found.setdefault(distance, []).append((of.rate * scale, scale, trace))
    return found[min(found)] if found else []


def _scale(figure: Figure, of: Figure) -> float | None:
    """How many times faster the devices of ``figure`` can be at most: the larger ratio by FLOP and by bytes.

    Below 1 the device may be used better than the reference's, up to :data:`_USED` of its limits. None where
    no limit of both is known.
    """
    pairs = [
        (theirs, ours)
        for theirs, ours in zip(of.least_s(), figure.least_s(), strict=True)
        if theirs is not None and ours is not None
    ]
    if not pairs:
        return None
    ratio = max(theirs / ours for theirs, ours in pairs)
    used = of.rate * max(theirs for theirs, _ in pairs)
    return ratio if ratio >= 1 else min(1.0, ratio * max(1.0, _USED / used))
