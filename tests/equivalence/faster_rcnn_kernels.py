"""Faster R-CNN's Triton kernels against its plain operations, in Triton's interpreter on the CPU.

``python -m tests.equivalence.faster_rcnn_kernels FILE PACKAGES`` writes pooled regions with the gradient of
the table, matches of anchors and survivors of suppression, each under ``<case>/ours`` and ``<case>/plain``.
Triton is imported from the folder PACKAGES.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

GRIDS = ((24, 16), (12, 8), (6, 4), (3, 2), (2, 1))  # of images of 96 x 64 pixels
BATCH, REGIONS, CHANNELS = 2, 9, 5
ROWS = sum(high * wide for high, wide in GRIDS[:4])


def drawn_regions(dtype: Any) -> Any:
    """Regions [batch, k, 4] of all sizes, some with an edge outside of the image, one of no size."""
    import torch

    generator = torch.Generator().manual_seed(3)
    corners = torch.rand(BATCH, REGIONS, 2, generator=generator, dtype=torch.float64) * 70 - 5
    sides = torch.exp2(torch.rand(BATCH, REGIONS, 2, generator=generator, dtype=torch.float64) * 6.5)
    sides[:, 0] = 0
    return torch.cat((corners, corners + sides), dim=-1).to(dtype)


def pooled(dtype: Any, of_table: Any) -> dict[str, Any]:
    """Pooling and its gradient, with regions of ``dtype`` and a table of another type."""
    import torch

    from suite.workloads.faster_rcnn import pytorch_regions, regions, spec
    from suite.workloads.faster_rcnn.pytorch_model import pooled_levels
    from suite.workloads.faster_rcnn.pytorch_ops import Ops

    dims = replace(spec.dimensions("mini", "r50-fpn"), canonical=24, pool=3)
    o = Ops(dtype, torch.device("cpu"))
    constants = regions.Constants(GRIDS, (), None, None)
    rois, levels = drawn_regions(dtype), torch.from_numpy(pooled_levels(GRIDS))
    generator = torch.Generator().manual_seed(4)
    values = torch.randn(BATCH * ROWS, CHANNELS, generator=generator, dtype=torch.float64).to(of_table)

    def ours(table: Any) -> Any:
        return pytorch_regions.pool(table, rois, levels, dims.pool, dims.canonical)

    def plain(table: Any) -> Any:
        index, weight = regions.taps(o, constants, dims, rois)
        rows = o.take_rows(table.to(dtype), index)
        return (rows * weight.unsqueeze(-1)).sum(dim=-2).to(of_table)

    compiled = torch.compile(lambda table: ours(2 * table), backend="aot_eager", fullgraph=True)
    ways = {"ours": ours, "plain": plain, "compiled/ours": compiled, "compiled/plain": lambda x: plain(2 * x)}
    found = {}
    for name, function in ways.items():
        table = values.detach().requires_grad_()
        output = function(table)
        slopes = torch.randn(output.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        (gradient,) = torch.autograd.grad(output, table, slopes.to(of_table))
        part, _, way = f"/{name}".rpartition("/")
        for result, value in (("output", output.detach()), ("gradient", gradient)):
            found[f"pool {dtype} {of_table} {result}{part}/{way}"] = value.double().numpy()
    return found


def suppressed(count: int, rounds: int, labelled: bool, dtype: Any) -> dict[str, Any]:
    """Suppression among ``count`` boxes of which many overlap, with equal scores, some not there."""
    import torch

    from suite.workloads.faster_rcnn import boxes, pytorch_regions
    from suite.workloads.faster_rcnn.pytorch_ops import Ops

    generator = torch.Generator().manual_seed(count + rounds)
    corners = torch.randint(0, 12, (2, count, 2), generator=generator)
    sides = torch.randint(6, 14, (2, count, 2), generator=generator)
    rois = torch.cat((corners, corners + sides), dim=-1).to(dtype)
    score = torch.randint(1, 20, (2, count), generator=generator).to(dtype)
    there = (torch.rand(2, count, generator=generator) < 0.9).to(dtype)
    labels = torch.randint(1, 4, (2, count), generator=generator).to(dtype) if labelled else None
    arguments = Ops(dtype, torch.device("cpu")), rois, score, there, 0.5, rounds, labels
    name = f"suppress {count} {rounds} {labelled} {dtype}"
    ways = {"ours": pytorch_regions.survivors, "plain": boxes.survivors}
    return {f"{name}/{way}": function(*arguments).double().numpy() for way, function in ways.items()}


def matched(dtype: Any) -> dict[str, Any]:
    """Anchors, some equally near to an object; an image without objects, and one that begins with padding."""
    import torch

    from suite.workloads.faster_rcnn import boxes, pytorch_regions
    from suite.workloads.faster_rcnn.pytorch_ops import Ops

    generator = torch.Generator().manual_seed(6)
    corners = torch.randint(0, 40, (1500, 2), generator=generator)
    sides = torch.randint(4, 24, (1500, 2), generator=generator)
    anchors = torch.cat((corners, corners + sides), dim=-1)
    anchors[700:750] = anchors[:50]
    corners = torch.randint(0, 40, (3, 4, 2), generator=generator)
    truth = torch.cat((corners, corners + 12), dim=-1)
    truth[0, 0] = anchors[20]
    truth[0, 1] = 200  # overlaps no anchor
    real = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1]])
    arguments = Ops(dtype, torch.device("cpu")), *(part.to(dtype) for part in (anchors, truth, real))
    ways = {"ours": pytorch_regions.match_anchors, "plain": boxes.match_anchors}
    return {
        f"match {part} {dtype}/{way}": value.double().numpy()
        for way, function in ways.items()
        for part, value in zip(("best", "index", "nearest"), function(*arguments), strict=True)
    }


def cases() -> Iterator[dict[str, Any]]:
    """Every case."""
    import torch

    for types in ((torch.float64, torch.float64), (torch.float32, torch.float16)):
        yield pooled(*types)
        yield matched(types[0])
    for count, rounds in ((33, 1), (33, 3), (70, 16), (300, 16)):
        for labelled in (False, True):
            yield suppressed(count, rounds, labelled, torch.float64 if count == 33 else torch.float32)


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    found: dict[str, Any] = {}
    for arrays in cases():
        found |= arrays
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
