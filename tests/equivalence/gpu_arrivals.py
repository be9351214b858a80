"""The clock of a GPU as the clock of arrivals at the exchange, in PyTorch on a GPU, in one process.

``python -m tests.equivalence.gpu_arrivals`` prints resolution, error and cost, and returns the number of
problems.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from time import monotonic_ns

import torch

from suite.frameworks.pytorch.arrivals import DeviceArrivals

STEPS = 100
COARSE_NS = 2_000  # a coarser clock shows no lateness of a hundredth of a step of 200 us


def problems(device: torch.device) -> Iterator[str]:
    """Checks arrivals that eager code records, and those that a captured graph records."""
    arrivals = DeviceArrivals(device)
    work = torch.ones(2048, 2048, device=device)
    arrivals.record()
    work @ work
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(20):
            work @ work
        arrivals.record()
    for name, step in (("eager", arrivals.record), ("captured", graph.replay)):
        torch.cuda.synchronize()
        arrivals.prepare()
        before = monotonic_ns()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        after = monotonic_ns()
        times, clock = arrivals.read(STEPS), arrivals.clock()
        print(f"{name}: {clock}, {(after - before) / STEPS:.0f} ns a step")
        if times is None:
            yield f"{name}: expected {STEPS} arrivals on a clock that agrees with the host's, found none"
            continue
        if any(second < first for first, second in pairwise(times)):
            yield f"{name}: the arrivals do not increase"
        if not before - clock["bound_ns"] <= times[0] <= times[-1] <= after + clock["bound_ns"]:
            yield f"{name}: expected arrivals from {before} to {after}, found {times[0]} to {times[-1]}"
        if clock["resolution_ns"] > COARSE_NS:
            yield f"{name}: the clock ticks every {clock['resolution_ns']} ns, more than {COARSE_NS}"


def main() -> int:
    """See the module."""
    found = list(problems(torch.device("cuda:0")))
    print("\n".join(found) or "arrivals are as on the host's clock")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
