"""The sweep of the exchange between ranks: sums of growing size, untimed by the benchmark, after repeat 0.

As nccl-tests measures (PERFORMANCE.md there): each rank times its own calls, and the reader of the log takes
the slowest rank and derives the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from suite.contract import Exchange

LARGEST = {"cpu": 64 << 20, "cuda": 1 << 30}  # bytes
SMALLEST, GROWTH = 4, 4
ITERATIONS = 5
BUDGET_NS = 2_000_000_000


def sweep(exchange: Exchange, device: str, decide: Callable[[bool], bool]) -> dict[str, Any]:
    """The operation and, for each size in bytes, the time of each iteration in ns and whether it was exact.

    ``decide`` turns the wishes of the ranks to continue into one decision. ``ended`` states why no larger
    size follows: the largest was reached, or the next one would exceed the time or the memory.
    """
    rows: list[dict[str, Any]] = []
    began, next_ns, size, ended = monotonic_ns(), 0, SMALLEST, "largest"
    while size <= LARGEST[device]:
        started = monotonic_ns()
        if not decide(started - began + next_ns < BUDGET_NS):
            ended = "time"
            break
        measured = exchange.time_sums(size // 4, ITERATIONS)
        if measured is None:
            ended = "memory"
            break
        # Preparations take as long as before, the sums in proportion to their size.
        next_ns = monotonic_ns() - started + (GROWTH - 1) * sum(measured[0])
        rows.append({"bytes": size, "times_ns": measured[0], "exact": measured[1]})
        size *= GROWTH
    return {"operation": exchange.operation, "sizes": rows, "ended": ended}
