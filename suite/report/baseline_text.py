"""A baseline and its verdicts as text for the terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from suite.compare.baseline_verdict import FAST, OK, UNKNOWN, BaselineVerdict, SeriesVerdict
from suite.log.safe import safe
from suite.metrics.baseline import Baseline, Series
from suite.report.cells import aligned

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = {"FLOP": "FLOP/s", "byte": "B/s", "image": "images/s", "launch": "launches/s", "operation": "IO/s"}
AGAINST = {
    "self": "earlier baselines of this machine",
    "cohort": "other machines of this kind",
    "siblings": "the other GPUs of this host",
}


def text(baseline: Baseline, verdicts: Sequence[BaselineVerdict], width: int) -> str:
    """The table, what could not be measured, what limited the machine, and the verdicts."""
    lines = [f"machine: {safe(baseline.cohort, 400)}", ""]
    if baseline.series:
        lines += [*aligned(rows(baseline, verdicts), width=width), ""]
    lines += notes(baseline)
    for verdict in verdicts:
        lines += sentences(verdict)
    wrapped = (
        textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
        if len(line) > width else [line]
        for line in lines
    )  # fmt: skip
    return "\n".join(part for line in wrapped for part in line or [""])


def notes(baseline: Baseline) -> list[str]:
    """One line for each reason for which something was not measured, and for each condition."""
    names: dict[str, list[str]] = {}
    for name, reason in baseline.missing.items():
        names.setdefault(reason, []).append(safe(name))
    lines = [f"not measured: {', '.join(some)}: {safe(reason, 300)}" for reason, some in names.items()]
    return lines + [f"condition: {safe(one, 300)}" for one in baseline.conditions]


def rate_text(series: Series, rate: float) -> str:
    """``83.1 GB/s``; for launches the time of one, ``4.52 µs``."""
    if series.unit == "launch":
        return f"{_digits(1e6 / rate)} µs"
    unit = _UNITS[series.unit]
    if series.unit in ("FLOP", "byte"):
        for size, prefix in _PREFIXES:
            if rate >= size:
                return f"{_digits(rate / size)} {prefix}{unit}"
    return f"{_digits(rate)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits; large numbers to the unit."""
    rounded = float(f"{value:.3g}")
    return f"{value:,.{max(0, 2 - math.floor(math.log10(rounded)))}f}"


def rows(baseline: Baseline, verdicts: Sequence[BaselineVerdict]) -> list[list[str]]:
    """A row of heads, and one for each series: name, median, deviation, state in each comparison."""
    found = [["series", "median", "deviation", *(one.against for one in verdicts)]]
    by_name = [{one.name: one for one in verdict.series} for verdict in verdicts]
    for name, series in baseline.series.items():
        states = [_state(one.get(name)) for one in by_name]
        found.append([name, rate_text(series, series.rate), f"{series.deviation:.1%}", *states])
    return found


def _state(verdict: SeriesVerdict | None) -> str:
    if verdict is None:
        return ""
    return verdict.state if verdict.ratio is None else f"{verdict.state} {verdict.ratio - 1:+.1%}"


def sentences(verdict: BaselineVerdict) -> list[str]:
    """One line with the verdict, and one for each series that is slow or fast: with n, σ̂ and threshold."""
    head = f"verdict against {AGAINST[verdict.against]}: {verdict.state}"
    if verdict.state == UNKNOWN:
        reasons = sorted({one.reason for one in verdict.series if one.reason})
        return [head + (f" ({reasons[0]})" if reasons else " (no series was measured)")]
    thresholds = [-math.expm1(-one.threshold) for one in verdict.series if one.threshold is not None]
    least, most = f"{min(thresholds):.1%}", f"{max(thresholds):.1%}"
    lines = [f"{head} (threshold of a loss: {least if least == most else f'{least} to {most}, by series'})"]
    for one in verdict.series:
        if one.state in (OK, UNKNOWN):
            continue
        assert one.ratio is not None
        assert one.sigma is not None
        assert one.threshold is not None
        threshold = math.expm1(one.threshold if one.state == FAST else -one.threshold)
        lines.append(
            f"  {one.name} is {one.state}: {one.ratio - 1:+.1%} from the median of n = {one.count}, "
            f"threshold {threshold:+.1%}, σ = {one.sigma:.2%}"
        )
    return lines
