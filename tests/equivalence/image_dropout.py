"""Position, rate and scaling of dropout in the classifiers: gradients under given masks, in one framework.

``python -m tests.equivalence.image_dropout FRAMEWORK FILE`` writes, for each of ``WORKLOADS``, the gradients
of batch 0 with a mask at each dropout, and the results of steps with random masks.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from suite import workloads
from suite.common import layers
from suite.common.stream import Stream
from suite.workloads.googlenet import spec as googlenet
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 0.3
BATCH = 2  # half that of the cases: XLA does not optimise the convolutions here
WORKLOADS = ("alexnet", "vgg16", "googlenet")  # dropout before dense layers, after them, after the mean
BLOCKS = ("3a", "pool3", "4a", "pool4", "5a")  # of GoogLeNet


def masks(workload: str, batch: int) -> dict[str, NDArray[np.float64]]:
    """A mask [batch, features] of ones and zeros for each dropout of ``workload``, by its name."""
    spec: Any = workloads.specification(workload)
    dims = spec.SIZES["mini"]
    network = spec.network(dims)
    found = {}
    for at, layer in enumerate(network):
        if isinstance(layer, layers.Dropout):
            (features,) = layers.output_shape(network[:at], dims.shape)
            kept = Stream("test", "mask", workload, layer.name).unit(batch * features) >= RATE
            found[layer.name] = kept.reshape(batch, features).astype(np.float64)
    return found


def examine(workload: str, framework: str) -> dict[str, Any]:
    """See the module; by names that begin with the workload's."""
    case = replace(load(workload), batch=BATCH)
    job = replace(case.job(framework, "fp64", dropout=str(RATE)), fast=False)
    pair = build(case, job)
    tensor = workloads.framework_module(job).Framework(job).tensor
    pair.dropout.masks.update({name: tensor(mask) for name, mask in masks(workload, case.batch).items()})
    last = list(pair.parameters())[-2]
    found = {f"{workload}/masked/{name}": array for name, array in pair.gradients(0).items()}
    pair = build(case, job)  # a compiled function keeps the masks that it was traced with
    found[f"{workload}/random"] = pair.gradients(0)[last]
    found[f"{workload}/last"] = found[f"{workload}/masked/{last}"]
    found[f"{workload}/outputs"], found[f"{workload}/evaluated"] = pair.outputs(0), pair.evaluated(0)
    without = build(case, replace(job, hyper={**job.hyper, "dropout": "0"}))
    found[f"{workload}/outputs without"] = without.outputs(0)
    found[f"{workload}/evaluated without"] = without.evaluated(0)
    found[f"{workload}/last without"] = without.gradients(0)[last]
    return found


def main(framework: str, file: str) -> None:
    """See the module."""
    load("googlenet").compile_quickly(framework)
    # One block of each size: compilation takes long, and the dropout lies behind all blocks.
    googlenet.BLOCKS = {name: sizes for name, sizes in googlenet.BLOCKS.items() if name in BLOCKS}
    found: dict[str, Any] = {}
    for workload in WORKLOADS:
        found |= examine(workload, framework)
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
