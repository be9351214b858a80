"""Triton's kernels of word2vec against the plain operators, in Triton's interpreter on the CPU.

``python -m tests.equivalence.word2vec_kernels FILE PACKAGES`` writes losses and changed tables of both, for
small odd sizes and of the pair, in fp64 and fp32. Triton is imported from the folder PACKAGES. Its
interpreter has no products of bfloat16; the compiled kernels are checked on a GPU.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from suite.workloads.word2vec import pytorch_ops as plain
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZES = ((13, 2, 3, 30, 20), (9, 5, 25, 50, 200))  # centres, W, K, V, D
STEPS = 2
BATCH = 40  # words: the interpreter runs a hundred programs in a second


def draw(seed: int, *shape: int) -> torch.Tensor:
    """Uniform numbers, in float64."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def example(centres: int, window: int, negatives: int, known: int, width: int) -> dict[str, torch.Tensor]:
    """Two tables, whose products pass the saturation, and a batch with contexts at both of its ends."""
    span, targets = 2 * window + 1, 1 + negatives
    contexts, live = (draw(1, centres, span) < 0.6).double(), (draw(2, centres, targets) < 0.9).double()
    contexts[centres // 3] = 0
    live[-1] = 0
    return {
        "input": (draw(3, known, width) - 0.5) * 10 / width**0.25,
        "output": (draw(4, known, width) - 0.5) * 10 / width**0.25,
        "words": (draw(5, centres + 2 * window) * known).int(),
        "targets": (draw(6, centres, targets) * known).int(),
        "contexts": contexts,
        "live": live,
        "word_share": draw(7, centres + 2 * window),
        "target_share": draw(8, centres, targets),
        "rate": torch.tensor(0.3, dtype=torch.float64),
    }


def by_kernels(batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Losses, their sum with the number of pairs, and the changed tables."""
    from suite.workloads.word2vec import pytorch_kernels as kernels

    tables = [batch["input"].clone(), batch["output"].clone()]
    found = kernels.differentiate(tables, batch, tables[0].dtype)
    kernels.descend(tables, found, batch, batch["rate"])
    return [found.losses, found.totals.sum(dim=1), *tables]


def by_operators(batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """As :func:`by_kernels`."""
    tables = batch["input"].clone(), batch["output"].clone()
    ids, masks = (batch["words"], batch["targets"]), (batch["contexts"], batch["live"])
    losses, *parts = plain.gradients(tables, *ids, *masks, tables[0].dtype)
    shares = batch["word_share"], batch["target_share"]
    for table, at, share, part in zip(tables, ids, shares, parts, strict=True):
        table.index_add_(0, at.flatten(), (-batch["rate"] * share[..., None] * part).flatten(0, -2))
    return [losses, torch.stack((losses.sum(), batch["contexts"].sum())), *tables]


def of_pair(precision: str, kernels: bool) -> dict[str, NDArray[Any]]:
    """The results of the pair of the equivalence test, from weights whose products pass the saturation."""
    case = load("word2vec")
    job = case.job("pytorch", precision)
    pair = build(case, replace(job, key=replace(job.key, batch=BATCH)))
    if kernels:
        pair.use_kernels()
    with torch.no_grad():
        for seed, table in enumerate(pair.masters.values()):
            table.copy_(2 * draw(seed, *table.shape) - 1)
    found = {f"gradient/{name}": array for name, array in pair.gradients(0).items()}
    found["outputs"] = pair.outputs(0)
    before = pair.parameters()
    for step in range(STEPS):
        pair.step(step)
    found |= {f"update/{name}": array - before[name] for name, array in pair.parameters().items()}
    return found | {"losses": np.array(pair.collect())}


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    found: dict[str, Any] = {}
    for precision, dtype in (("fp64", torch.float64), ("fp32", torch.float32)):
        for at, sizes in enumerate(SIZES):
            batch = {
                name: array.to(dtype) if array.is_floating_point() else array
                for name, array in example(*sizes).items()
            }
            for way, results in (("plain", by_operators(batch)), ("kernels", by_kernels(batch))):
                for name, result in zip(("losses", "sums", "input", "output"), results, strict=True):
                    found[f"{way}/{precision}/{at}/{name}"] = result.numpy()
        for way in ("plain", "kernels"):
            of_way = of_pair(precision, way == "kernels")
            found |= {f"{way}/{precision}/pair/{name}": array for name, array in of_way.items()}
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
