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
    case = load("resnet50_cifar10")
    found: dict[str, list[bool]] = {"train": [], "infer": []}
    for phase, completed in found.items():
        pair = build(case, replace(case.job("jax", "fp32", phase), fast=True))
        for step in range(STEPS):
            pair.step(step)
            completed.append(all(tensor.is_ready() for tensor in jax.live_arrays()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
