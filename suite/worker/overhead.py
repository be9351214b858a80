"""The null workload: fixed arithmetic through the real timing loop, to find out what the loop itself costs.

``python -m suite bench-overhead`` starts this process and sends JSON lines; each is answered by one. End of
file ends it. Standard library only.

* ``{"calibrate": ns}`` → ``{"iterations": n}``: how much work takes about that long here, once and for all.
* ``{"arms": [...], "iterations": n, "steps": k}`` → ``{"times": [[wall_ns, cpu_ns], ...]}``: one block of
  ``k`` steps for each arm, back to back. ``marked``: as a worker times a span; ``bare``: the same steps in a
  plain loop. Both are timed from outside by the same two pairs of clock readings.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from time import monotonic_ns, process_time_ns
from typing import Any

from suite.frameworks.common import HostTimestamps
from suite.worker.loop import run_span


class NullFramework:
    """A device that is always drained, with the timestamps that most frameworks use on a CPU."""

    timestamp_kind = "host_completion"

    def __init__(self) -> None:
        self._timestamps = HostTimestamps()

    def synchronize(self) -> None:
        """Nothing is ever pending."""

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
    """A step is a fixed number of chained SHA-256 compressions: no memory, no branch on data."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def step(self, index: int) -> None:  # noqa: ARG002 - every step does the same work
        """The same work whatever the index."""
        hashlib.pbkdf2_hmac("sha256", b"null", b"workload", self.iterations)

    def collect(self) -> list[Any]:
        """Nothing is kept."""
        return []


FRAMEWORK = NullFramework()


def marked(pair: NullPair, steps: int) -> None:
    """A block as a worker times it: its preparation and its reading of the timestamps included."""
    run_span(pair, FRAMEWORK, 0, steps)


def bare(pair: NullPair, steps: int) -> None:
    """The same steps with nothing between them."""
    step = pair.step
    for index in range(steps):
        step(index)


ARMS = {"marked": marked, "bare": bare}


def calibrate(target_ns: int) -> int:
    """Iterations of a step of about ``target_ns``, from the fastest of several looks."""
    iterations = 1000
    best = min(time_blocks(["bare"], iterations, 1)[0][1] for _ in range(50))
    return max(1, round(iterations * target_ns / best))


def time_blocks(arms: list[str], iterations: int, steps: int) -> list[list[int]]:
    """Wall and CPU time in ns of one block for each arm."""
    pair = NullPair(iterations)
    pair.step(0)  # wakes the core up
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
