"""What a shortened network leaves out is what it has already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from suite import workloads
from suite.common import layers
from tests.equivalence.case import load, names
from tests.equivalence.shortened import BLOCKS, short


def nameless(layer: Any) -> Any:
    """``layer`` with empty names."""
    if isinstance(layer, layers.Residual):
        return layers.Residual(*(tuple(map(nameless, part)) for part in (layer.body, layer.shortcut)))
    return replace(layer, name="") if hasattr(layer, "name") else layer


def stage_of(layer: Any) -> str:
    name: str = layer.body[0].name
    return name.partition(".")[0]


@pytest.mark.parametrize("case", [name for name in names() if load(name).shortened])
def test_every_block_left_out_repeats_one_that_is_kept(case: str) -> None:
    spec: Any = workloads.specification(load(case).workload)
    whole = spec.network(spec.SIZES["mini"])
    kept = short(whole)
    blocks = [layer for layer in kept if isinstance(layer, layers.Residual)]
    assert len(blocks) == 4 * BLOCKS
    stages = {(stage_of(block), nameless(block)) for block in blocks}
    left_out = [layer for layer in whole if layer not in kept]
    assert len(left_out) == len(whole) - len(kept) >= 8
    for layer in left_out:
        assert (stage_of(layer), nameless(layer)) in stages
