"""The types observed in one step of a pair, one JSON object per line. Run in the framework's interpreter.

``python -m tests.equivalence.observed_types FRAMEWORK PRECISION WORKLOAD...``: both phases, mini scale, two
samples, synthetic data, without compilation, which changes no type; training with an evaluation behind it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from suite import workloads
from suite.contract import Job, Key
from tests.equivalence.case import UNOPTIMISED, load

PHASES = ("train", "infer")


def types_of(workload: str, framework: str, phase: str, precision: str) -> dict[str, Any]:
    """The ``dtypes`` that the worker would report, and the compute type that the framework describes."""
    spec = workloads.specification(workload)
    variant = spec.VARIANTS["mini"][0]
    key = Key(workload, framework, phase, "offline", precision, 2, 1, "mini", "synthetic", "warm", variant)
    hyper = spec.hyperparameters("mini", variant)
    job = Job(key, "throughput", 7, 0, hyper, "cpu", 1, False, 0, 0, "", "")
    made = workloads.framework_module(job).Framework(job)
    pair = workloads.pair_module(job).Pair(job, made, workloads.open_data(job))
    pair.step(0)
    made.synchronize()
    pair.collect()
    if phase == "train":  # the evaluations of a quality run are no part of its steps
        pair.predict(load(workload).evaluation(spec.dimensions("mini", variant)))
    stated = made.describe()["compute_dtype"]
    return {"workload": workload, "phase": phase, "dtypes": made.dtypes(), "compute": stated}


def main(arguments: list[str]) -> None:
    """See the module."""
    framework, precision, *names = arguments
    os.environ["XLA_FLAGS"] = UNOPTIMISED  # types do not depend on what XLA optimises
    for name in names:
        for phase in PHASES:
            print(json.dumps(types_of(name, framework, phase, precision)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
