"""Residual networks with fewer repetitions of the same blocks, for tests that are not about their depth.

A test of every array in every framework compiles each repetition anew and learns nothing from it. The case
resnet50 keeps its depth, ``make equivalence`` compares every workload whole.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from suite.common.layers import Conv, Layer, Residual
from suite.workloads._classification.specification import Dimensions

WHOLE = ",whole"  # asks the runner for a case that is otherwise shortened
BLOCKS = 2  # of a stage: the one that changes its sizes, and one that repeats


def shorten(workload: str) -> None:
    """From now on ``workload`` has at most ``BLOCKS`` residual blocks a stage, in this process only."""
    module: Any = import_module(f"suite.workloads.{workload}.spec")
    whole = module.SPEC.network

    def network(dims: Dimensions) -> tuple[Layer, ...]:
        return tuple(layer for layer in whole(dims) if not _repeats(layer))

    module.SPEC = replace(module.SPEC, network=network)


def _repeats(layer: Layer) -> bool:
    """Whether ``layer`` is a residual block after the first ``BLOCKS`` of its stage."""
    if not isinstance(layer, Residual) or not isinstance(first := layer.body[0], Conv):
        return False
    _, block, _ = first.name.split(".", 2)  # "stage3.16.0.conv" (suite/workloads/_classification/resnet.py)
    return int(block) >= BLOCKS
