"""Compares quality values with the target in the rules; for some metrics lower is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def falls(wanted: Mapping[str, Any]) -> bool:
    """Whether lower is better, as for perplexity. ``wanted`` is the rules' entry of a workload's variant."""
    better: str = wanted.get("better", "higher")
    return better == "lower"


def reaches(value: float, wanted: Mapping[str, Any]) -> bool:
    """Whether ``value`` is at least as good as the target of ``wanted``."""
    target = float(wanted["target"])
    return value <= target if falls(wanted) else value >= target


def impossible(value: float, wanted: Mapping[str, Any]) -> bool:
    """Whether ``value`` is better than any model can reach without the test data.

    ``wanted`` has such a ``bound`` for generated data only.
    """
    if "bound" not in wanted:
        return False
    bound = float(wanted["bound"])
    return value < bound if falls(wanted) else value > bound
