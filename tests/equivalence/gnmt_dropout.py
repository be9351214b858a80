"""Position, rate and scaling of dropout in GNMT: gradients under given masks, in one framework's interpreter.

``python -m tests.equivalence.gnmt_dropout FRAMEWORK FILE`` writes the gradients of batch 0 with a mask on the
input of every LSTM, and how often a step without given masks drops what it should.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from suite.common.stream import Stream
from suite.workloads.gnmt import spec
from tests.equivalence.case import load
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 0.2


def masks(batch: int, source: int, target: int) -> dict[str, NDArray[np.float64]]:
    """A mask [B, T, width] of ones and zeros by LSTM name; the bidirectional layer has one."""
    dims = spec.dimensions("mini", "v2")
    found = {}
    for name, width in spec.lstms(dims).items():
        short = ".".join(name.split(".")[:2])
        steps = source if short.startswith("encoder") else target
        kept = Stream("test", "mask", short).unit(batch * steps * width) >= RATE
        found[short] = kept.reshape(batch, steps, width).astype(np.float64)
    return found


def main(framework: str, file: str) -> None:
    """See the module."""
    case = load("gnmt")
    # A pair of a throughput run would compile its steps, without the masks, when it is made.
    job = replace(case.job(framework, "fp64", dropout=str(RATE)), fast=False, mode="fingerprint")
    pair = build(case, job)
    batch, source = pair.data.batch(0)["source"].shape
    target = pair.data.batch(0)["target_in"].shape[1]
    given = {name: pair.framework.tensor(mask) for name, mask in masks(batch, source, target).items()}
    pair.dropout.masks.update(given)
    found: dict[str, Any] = {f"masked/{name}": array for name, array in pair.gradients(0).items()}
    pair = build(case, job)  # a compiled function keeps the masks that it was traced with
    found["random"] = np.array([pair.gradients(0)["attention.v"] for _ in range(2)])
    found["outputs"] = pair.outputs(0)
    without = build(case, replace(job, hyper={**job.hyper, "dropout": "0"}))
    found["outputs without"] = without.outputs(0)
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
