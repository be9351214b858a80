"""Prints, as JSON by phase, whether all tensors of a JAX step on a CPU exist when its call returns."""

from __future__ import annotations

import json
from dataclasses import replace

import jax

from tests.equivalence.case import load
from tests.equivalence.runner import build

STEPS = 5


def main() -> None:
    """Some steps of a small network, which take milliseconds each."""
    case, found = load("resnet50_cifar10"), {}
    for phase in ("train", "infer"):
        pair = build(case, replace(case.job("jax", "fp32", phase), fast=True))
        found[phase] = []
        for step in range(STEPS):
            pair.step(step)
            found[phase].append(all(tensor.is_ready() for tensor in jax.live_arrays()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
