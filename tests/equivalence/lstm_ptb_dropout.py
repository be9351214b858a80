"""Position, rate and scaling of dropout in the LSTM language model: gradients under given masks.

``python -m tests.equivalence.lstm_ptb_dropout FRAMEWORK FILE`` writes the gradients of batch 1, from the
state that batch 0 left, with a mask at every position, and the results of steps with random masks.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from suite.common.stream import Stream
from suite.workloads.lstm_ptb import spec
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 0.3
POSITIONS = ("lstm.0", "lstm.1", "softmax")


def masks(batch: int) -> dict[str, NDArray[np.float64]]:
    """A mask [B, T, width] of ones and zeros by position."""
    dims = spec.dimensions("mini", "small")
    shape = batch, dims.steps, dims.hidden
    drawn = {position: Stream("test", "mask", position).unit(int(np.prod(shape))) for position in POSITIONS}
    return {position: (unit >= RATE).reshape(shape).astype(np.float64) for position, unit in drawn.items()}


def main(framework: str, file: str) -> None:
    """See the module."""
    case = load("lstm_ptb")
    job = replace(case.job(framework, "fp64", dropout=str(RATE)), fast=False)
    pair = build(case, job)
    given = masks(job.key.batch)
    pair.dropout.masks.update({name: pair.framework.tensor(mask) for name, mask in given.items()})
    pair.step(0)
    found: dict[str, Any] = {f"masked/{name}": array for name, array in pair.gradients(1).items()}
    pair = build(case, job)  # a compiled function keeps the masks that it was traced with
    pair.step(0)
    found["first loss"], moved = pair.collect()[-1], pair.parameters()
    pair.reset()
    pair.step(0)
    found["again"], same = pair.collect()[-1], pair.parameters()
    found["repeats"] = np.array([np.array_equal(moved[name], same[name]) for name in moved])
    found["random"] = pair.gradients(1)["softmax.weight"]
    pair.reset()
    found["outputs"] = pair.outputs(0)
    without = build(case, replace(job, hyper={**job.hyper, "dropout": "0"}))
    found["outputs without"] = without.outputs(0)
    without.step(0)
    found["loss without"] = without.collect()[-1]
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
