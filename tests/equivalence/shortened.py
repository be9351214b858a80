"""Networks with fewer repetitions of the same blocks, for tests that are not about their depth.

A framework compiles each repetition anew, and a test learns nothing from it. The case resnet50 keeps its
depth, and ``make equivalence`` compares every network whole.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from suite.common.layers import Concat, Conv, Layer, Network, Residual, channels, walk

WHOLE = ",whole"  # asks the runner for a case that is otherwise shortened
BLOCKS = 2  # of a stage: the one that changes its sizes, and one that repeats


def shorten(workload: str, blocks: int = BLOCKS) -> None:
    """From now on ``workload`` has a shortened network, in this process only."""
    module: Any = import_module(f"suite.workloads.{workload}.spec")
    whole = module.SPEC.network
    module.SPEC = replace(module.SPEC, network=lambda dims: short(whole(dims), blocks))


def short(network: Network, blocks: int = BLOCKS) -> Network:
    """``network`` with at most ``blocks`` residual blocks in a stage, and parallel branches of a kind once.

    Branches that change the number of channels or the size stay.
    """
    kept, kinds = list[Layer](), set[Any]()
    for layer in network:
        if _repeats(layer, blocks) or (
            isinstance(layer, Concat) and _keeps_shape(layer) and kind(layer) in kinds
        ):
            continue
        kept.append(layer)
        kinds.add(kind(layer))
    return tuple(kept)


def kind(layer: Layer) -> Any:
    """What ``layer`` computes, without its name, its numbers of channels and its initial values."""
    if isinstance(layer, Concat):
        return tuple(tuple(map(kind, branch)) for branch in layer.branches)
    names = ("kernel", "stride", "padding", "ceil", "bias")
    return type(layer), tuple(getattr(layer, name, None) for name in names)


def _keeps_shape(layer: Concat) -> bool:
    """Whether the output of parallel branches has the shape of their input."""
    inner = list(walk([layer]))
    inputs = next(each.inputs for each in inner if isinstance(each, Conv))
    return {getattr(each, "stride", 1) for each in inner} == {1} and channels([layer], inputs) == inputs


def _repeats(layer: Layer, blocks: int) -> bool:
    """Whether ``layer`` is a residual block after the first ``blocks`` of its stage."""
    if not isinstance(layer, Residual) or not isinstance(first := layer.body[0], Conv):
        return False
    _, block, _ = first.name.split(".", 2)  # "stage3.16.0.conv" (suite/workloads/_classification/resnet.py)
    return int(block) >= blocks
