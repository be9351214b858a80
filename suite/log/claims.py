"""The claims of a run: the harness computes them for the footer, and the checker computes them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suite.log.statistics import throughput

NOT_QUALITY = "not a quality run"
NOT_THROUGHPUT = "a quality run has no throughput"
NO_SPREAD = "a single repeat has no spread"
NOT_REACHED = "the target was not reached in every repeat"


def claims_of(
    mode: str,
    windows_ns: Sequence[int],
    units: Sequence[int | None],
    times_to_quality_ns: Sequence[int | None] = (),
) -> tuple[dict[str, Any], dict[str, str]]:
    """The footer's ``claims`` and the reasons for their nulls. The arguments list the repeats in order.

    Throughput mode: the sums of windows (ns) and units; units per second and CV as hex-float strings. Quality
    mode: the mean time to the target in whole ns, rounded down, null unless every repeat reached the target.
    """
    if mode == "quality":
        reached = [ns for ns in times_to_quality_ns if ns is not None]
        all_reached = bool(reached) and len(reached) == len(windows_ns)
        values: dict[str, Any] = {
            "window_ns": sum(windows_ns),
            "units": None,
            "throughput": None,
            "cv": None,
            "time_to_quality_ns": sum(reached) // len(reached) if all_reached else None,
        }
        reasons = dict.fromkeys(("claims.units", "claims.throughput", "claims.cv"), NOT_THROUGHPUT)
        return values, reasons if all_reached else {**reasons, "claims.time_to_quality_ns": NOT_REACHED}
    counted = [count for count in units if count is not None]
    result = throughput(windows_ns, counted)
    values = {
        "window_ns": result.window_ns,
        "units": result.units,
        "throughput": result.per_second.hex(),
        "cv": None if result.cv is None else result.cv.hex(),
        "time_to_quality_ns": None,
    }
    reasons = {"claims.time_to_quality_ns": NOT_QUALITY}
    return values, reasons if result.cv is not None else {**reasons, "claims.cv": NO_SPREAD}
