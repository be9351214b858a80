"""The figure of a scaling set: efficiency against devices, and what the lost part went to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.compare.ratio import Ratio
from suite.compare.scaling import CheckedSet, GroupFigures
from suite.compare.scaling_set import INDEPENDENT, SYNCHRONOUS
from suite.report.plot import STYLE, literal, wrapped
from suite.report.scaling_table import heading, notes

# Of Okabe and Ito (2008): distinguishable with any colour vision. Markers and hatches differ too.
_LINES = {SYNCHRONOUS: ("#0072B2", "o", "-"), INDEPENDENT: ("#E69F00", "s", "--")}
_CONTENTION, _SYNCHRONISATION = ("#E69F00", "//"), ("#0072B2", "..")
_SIZE = (7.6, 3.9)  # inches
_LONGEST = 300  # characters of a line of text


def draw(checked: CheckedSet, out: Path) -> None:
    """Draw the groups with figures into ``out``; its suffix (.svg, .png, .pdf) sets the format.

    Raises ImportError without matplotlib, OSError.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # needs no display
    from matplotlib import pyplot as plt

    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=_SIZE, layout="constrained")
        try:
            _efficiency(left, checked)
            _losses(right, checked)
            figure.suptitle(wrapped(literal(heading(checked), _LONGEST), 95), fontsize=9)
            figure.supxlabel(
                wrapped("; ".join(literal(line, _LONGEST) for line in notes(checked)), 130),
                x=0.01,
                ha="left",
                fontsize=7,
            )
            metadata = {"Date": None} if out.suffix == ".svg" else None  # equal figures are equal files
            figure.savefig(out, dpi=150, metadata=metadata)
        finally:
            plt.close(figure)


def _efficiency(axis: Any, checked: CheckedSet) -> None:
    counts = [one.devices for one in checked.figures]
    axis.axhline(100, color="0.4", linewidth=1, linestyle=":", label="ideal")
    top = 100.0
    for name, (colour, marker, line) in _LINES.items():
        ratios = [one.shares[name] for one in checked.figures if name in one.shares]
        if ratios:
            values, ends = _with_ends(ratios)
            axis.errorbar(
                [1, *counts], [100, *values], [[0, *ends[0]], [0, *ends[1]]],
                color=colour, marker=marker, linestyle=line, capsize=3, label=name,
            )  # fmt: skip
            top = max(top, *values)
    # A wide interval must not flatten the lines.
    axis.set_ylim(0, 1.2 * top)
    axis.set_xscale("log", base=2)
    axis.set_xticks([1, *counts], [str(count) for count in (1, *counts)])
    axis.minorticks_off()
    axis.set_xlabel("devices N")
    axis.set_ylabel("throughput, % of N single devices")
    axis.legend(loc="lower left", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


def _with_ends(ratios: list[Ratio]) -> tuple[list[float], tuple[list[float], list[float]]]:
    values = [100 * ratio.value for ratio in ratios]
    below = [100 * (ratio.value - ratio.low) for ratio in ratios]
    above = [100 * (ratio.high - ratio.value) for ratio in ratios]
    return values, (below, above)


def _losses(axis: Any, checked: CheckedSet) -> None:
    """Stacked parts of N single devices' throughput: both add up to what efficiency lacks to 100 %."""
    for at, one in enumerate(checked.figures):
        bottom = 0.0
        for name, (colour, hatch), lost in _parts(one):
            axis.bar(
                at, lost, 0.6, bottom=bottom if lost > 0 else 0, color=colour, hatch=hatch, edgecolor="black",
                linewidth=0.6, label=name if at == 0 else None,
            )  # fmt: skip
            bottom += max(lost, 0)
        axis.text(at, bottom, f"{100 * (1 - one.efficiency.value):.1f} %", ha="center", va="bottom")
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_xticks(range(len(checked.figures)), [str(one.devices) for one in checked.figures])
    axis.margins(y=0.25)
    axis.set_xlabel("devices N")
    axis.set_ylabel("lost, % of N single devices")
    axis.legend(loc="upper left", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


def _parts(one: GroupFigures) -> list[tuple[str, tuple[str, str], float]]:
    contention = 100 * one.contention.value
    parts = [("contention", _CONTENTION, contention)]
    if one.synchronisation is not None:
        parts.append(("synchronisation", _SYNCHRONISATION, 100 * (1 - one.efficiency.value) - contention))
    return parts
