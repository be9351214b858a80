"""The null workload: fixed arithmetic in the real timing loop, to measure the cost of the loop itself.

``python -m suite bench-overhead`` starts this process and sends JSON lines; the process answers each with one
line, and ends at end of file. Standard library only.

* ``{"calibrate": ns}`` → ``{"iterations": n}``: the iterations of a step of about that length.
* ``{"arms": [...], "iterations": n, "steps": k}`` → ``{"times": [[wall_ns, cpu_ns], ...]}``: one block of
  ``k`` steps for each arm, back to back. ``marked``: as a worker times a span; ``bare``: the same steps in a
  plain loop. Both have the same clock readings before and after the block.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from time import monotonic_ns, process_time_ns
from typing import Any

from suite.frameworks.arrivals import HostArrivals
from suite.frameworks.common import HostTimestamps
from suite.worker.loop import run_span


class NullFramework:
    """A device without pending work, with the timestamps that most frameworks use on a CPU."""

    timestamp_kind = "host_completion"

    def __init__(self) -> None:
        self._timestamps = HostTimestamps()
        self.arrivals = HostArrivals()

    def synchronize(self) -> None:
        """Do nothing: no work is pending."""

    def prepare_timestamps(self, count: int) -> None:
        """See :class:`suite.contract.Framework`."""
        self._timestamps.prepare(count)

    def record_timestamp(self, index: int) -> None:
        """See :class:`suite.contract.Framework`."""
        self._timestamps.record_timestamp(index)

    def read_timestamps(self, count: int) -> list[int]:
        """See :class:`suite.contract.Framework`."""
        return self._timestamps.read(count)


class NullPair:
    """A step is a fixed number of chained SHA-256 compressions: no memory, no data-dependent branch."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def step(self, index: int) -> None:  # noqa: ARG002 - every step does the same work
        """Do the same work for every index."""
        hashlib.pbkdf2_hmac("sha256", b"null", b"workload", self.iterations)

    def collect(self) -> list[Any]:
        """No results."""
        return []


class NullRank(NullPair):
    """The same as one of several ranks, which records when it reaches the exchange."""

    def step(self, index: int) -> None:
        """See :class:`NullPair`."""
        super().step(index)
        FRAMEWORK.arrivals.record()


FRAMEWORK = NullFramework()


def marked(pair: NullPair, steps: int) -> None:
    """A block as a worker times it, with preparation and reading of the timestamps and arrivals."""
    run_span(NullRank(pair.iterations), FRAMEWORK, 0, steps)


def bare(pair: NullPair, steps: int) -> None:
    """The same steps in a plain loop."""
    step = pair.step
    for index in range(steps):
        step(index)


ARMS = {"marked": marked, "bare": bare}


def calibrate(target_ns: int) -> int:
    """Iterations of a step of about ``target_ns``, from the fastest of 50 measurements."""
    iterations = 1000
    best = min(time_blocks(["bare"], iterations, 1)[0][1] for _ in range(50))
    return max(1, round(iterations * target_ns / best))


def time_blocks(arms: list[str], iterations: int, steps: int) -> list[list[int]]:
    """Wall and CPU time in ns of one block of each arm."""
    pair = NullPair(iterations)
    pair.step(0)  # warm-up
    times: list[list[int]] = []
    for name in arms:
        arm = ARMS[name]
        wall, cpu = monotonic_ns(), process_time_ns()
        arm(pair, steps)
        times.append([monotonic_ns() - wall, process_time_ns() - cpu])
    return times


def main() -> int:
    """Answer commands until end of file."""
    gc.freeze()
    gc.disable()  # as in a window
    for line in sys.stdin:
        command = json.loads(line)
        if "calibrate" in command:
            answer: dict[str, Any] = {"iterations": calibrate(command["calibrate"])}
        else:
            answer = {"times": time_blocks(command["arms"], command["iterations"], command["steps"])}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
