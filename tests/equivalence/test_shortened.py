"""What a shortened network leaves out is what it has already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from suite import workloads
from suite.common import layers
from tests.equivalence.case import load, names
from tests.equivalence.shortened import BLOCKS, kind, short


def nameless(layer: Any) -> Any:
    """``layer`` with empty names."""
    if isinstance(layer, layers.Residual):
        return layers.Residual(*(tuple(map(nameless, part)) for part in (layer.body, layer.shortcut)))
    return replace(layer, name="") if hasattr(layer, "name") else layer


def stage_of(layer: Any) -> str:
    name: str = layer.body[0].name
    return name.partition(".")[0]


SHORTENED = [name for name in names() if load(name).shortened]


def whole_of(case: str) -> layers.Network:
    spec: Any = workloads.specification(load(case).workload)
    network: layers.Network = spec.network(spec.SIZES["mini"])
    return network


@pytest.mark.parametrize("case", [name for name in SHORTENED if "resnet" in name])
def test_every_block_left_out_repeats_one_that_is_kept(case: str) -> None:
    whole = whole_of(case)
    kept = short(whole)
    blocks = [layer for layer in kept if isinstance(layer, layers.Residual)]
    assert len(blocks) == 4 * BLOCKS
    stages = {(stage_of(block), nameless(block)) for block in blocks}
    left_out = [layer for layer in whole if layer not in kept]
    assert len(left_out) == len(whole) - len(kept) >= 8
    for layer in left_out:
        assert (stage_of(layer), nameless(layer)) in stages


@pytest.mark.parametrize(
    ("case", "left_out"),
    [
        ("inception_v3", "a2 c1 c2 c3 e1"),
        ("googlenet", "4b 4c 5a"),
        ("inception_bn_small", "block3 block4 block5 block9"),
    ],
)
def test_parallel_branches_left_out_are_of_a_kind_that_is_kept(case: str, left_out: str) -> None:
    assert load(case).shortened
    whole = whole_of(case)
    kept = short(whole)
    missing = [layer for layer in whole if layer not in kept]
    first = [
        next(inner for inner in layers.walk([layer]) if isinstance(inner, layers.Conv)) for layer in missing
    ]
    assert [conv.name.partition(".")[0] for conv in first] == left_out.split()
    assert {kind(layer) for layer in missing} <= {kind(layer) for layer in kept}
