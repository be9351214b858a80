"""Steps of the scenario ``forward_backward``. Run in a framework's interpreter: ``… FRAMEWORK CASE…``.

Prints, as JSON, for each case in float64: the losses and gradient norms of three steps, the losses after a
reset, the norm of what ``gradients`` returns for the first batch, the first loss of a training, and the names
of weights that have changed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from suite.contract import FORWARD_BACKWARD, Job
from tests.equivalence.case import Case, load
from tests.equivalence.runner import build

STEPS = 3


def without_update(job: Job) -> Job:
    """The same job without updates."""
    return replace(job, key=replace(job.key, scenario=FORWARD_BACKWARD))


def losses(pair: Any, steps: int) -> list[float]:
    """Those of the first ``steps`` steps."""
    for step in range(steps):
        pair.step(step)
    return [float(loss) for loss in pair.collect()]


def steps_of(case: Case, framework: str) -> dict[str, Any]:
    """See the module."""
    case.compile_quickly(framework)
    job = case.job(framework, "fp64")
    pair = build(case, without_update(job))
    before = pair.parameters()
    whole = np.concatenate([array.ravel() for array in pair.gradients(0).values()])
    pair.reset()
    found = losses(pair, STEPS)
    norms = list(pair.gradient_norms())
    after = pair.parameters()
    pair.reset()
    again = losses(pair, STEPS)
    return {
        "losses": found,
        "norms": norms,
        "again": again,
        "norm of gradients": float(np.linalg.norm(whole)),
        "training": losses(build(case, job), 1)[0],
        "changed": [name for name, array in before.items() if not np.array_equal(array, after[name])],
    }


if __name__ == "__main__":
    print(json.dumps({name: steps_of(load(name), sys.argv[1]) for name in sys.argv[2:]}))
