"""What a quality value is worth beside the target of the rules: some metrics rise with quality, some fall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def falls(wanted: Mapping[str, Any]) -> bool:
    """Whether lower is better under ``wanted``, the rules' entry of a workload's variant (perplexity)."""
    better: str = wanted.get("better", "higher")
    return better == "lower"


def reaches(value: float, wanted: Mapping[str, Any]) -> bool:
    """Whether ``value`` is as good as the target of ``wanted``."""
    target = float(wanted["target"])
    return value <= target if falls(wanted) else value >= target


def impossible(value: float, wanted: Mapping[str, Any]) -> bool:
    """Whether ``value`` is better than any model can be that has not seen the test data.

    Only generated data have such a ``bound`` in ``wanted``.
    """
    if "bound" not in wanted:
        return False
    bound = float(wanted["bound"])
    return value < bound if falls(wanted) else value > bound
