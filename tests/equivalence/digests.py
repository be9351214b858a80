"""Prints digests of the arrays that numpy makes for all frameworks: initial weights and first batches."""

from __future__ import annotations

import sys

from suite import workloads
from suite.common import weights
from suite.common.stream import digest_arrays
from tests.equivalence.case import load, names


def lines() -> list[str]:
    """One line per case: name, digest of the initial weights, digests of the first two batches."""
    found = []
    for name in names():
        case = load(name)
        job = case.job("pytorch", "fp32")
        spec = workloads.specification(case.workload)
        initial = weights.digest(case.workload, spec.parameters(spec.dimensions("mini", case.variant)))
        data = workloads.open_data(job)
        batches = [digest_arrays(data.batch(step)) for step in range(2)]
        found.append(" ".join((name, initial, *batches)))
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()))
