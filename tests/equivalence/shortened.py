"""Residual networks with fewer repetitions of the same blocks, for tests that are not about their depth.

A framework compiles each repetition anew, and a test learns nothing from it. The case resnet50 keeps its
depth, and ``make equivalence`` compares every network whole.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from suite.common.layers import Conv, Layer, Network, Residual

WHOLE = ",whole"  # asks the runner for a case that is otherwise shortened
BLOCKS = 2  # of a stage: the one that changes its sizes, and one that repeats


def shorten(workload: str, blocks: int = BLOCKS) -> None:
    """From now on ``workload`` has a shortened network, in this process only."""
    module: Any = import_module(f"suite.workloads.{workload}.spec")
    whole = module.SPEC.network
    module.SPEC = replace(module.SPEC, network=lambda dims: short(whole(dims), blocks))


def short(network: Network, blocks: int = BLOCKS) -> Network:
    """``network`` with at most ``blocks`` residual blocks in a stage."""
    return tuple(layer for layer in network if not _repeats(layer, blocks))


def _repeats(layer: Layer, blocks: int) -> bool:
    """Whether ``layer`` is a residual block after the first ``blocks`` of its stage."""
    if not isinstance(layer, Residual) or not isinstance(first := layer.body[0], Conv):
        return False
    _, block, _ = first.name.split(".", 2)  # "stage3.16.0.conv" (suite/workloads/_classification/resnet.py)
    return int(block) >= blocks
