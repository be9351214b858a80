"""The null workload: fixed arithmetic in the real timing loop, to measure the cost of the loop itself.

``python -m suite bench-overhead`` starts this process and sends JSON lines; the process answers each with one
line, and ends at end of file. Standard library only.

* ``{"calibrate": ns}`` → ``{"iterations": n}``: the iterations of a step of about that length.
* ``{"arms": [...], "iterations": n, "steps": k}`` → ``{"blocks": [[wall_ns, cpu_ns, gap_ns], ...]}``: one
  block of ``k`` steps for each arm, back to back, from before its first to after its last step.
  ``marked``: as a worker times a span, ``bare``: the same steps in a plain loop. The gap is the median
  time from the end of the work of a step to the beginning of the next one's, null if ``k`` is 1; both
  arms read the clock for it.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from statistics import median
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
        self.drains: list[tuple[int, int]] = []  # wall and CPU time of each drain in ns

    def synchronize(self) -> None:
        """Note the time, as no work is pending: the loop drains the device before and after its steps."""
        self.drains.append((monotonic_ns(), process_time_ns()))

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
    """A step is a fixed number of chained SHA-256 compressions: no memory, no data-dependent branch.

    With ``arrivals`` it is that of one of several ranks, which records when it reaches the exchange.
    """

    def __init__(self, iterations: int, steps: int, arrivals: HostArrivals | None) -> None:
        self._iterations, self._arrivals = iterations, arrivals
        self._began, self._ended = [0] * steps, [0] * steps

    def step(self, index: int) -> None:
        """Do the same work for every index."""
        self._began[index] = monotonic_ns()
        hashlib.pbkdf2_hmac("sha256", b"null", b"workload", self._iterations)
        self._ended[index] = monotonic_ns()
        if self._arrivals is not None:
            self._arrivals.record()

    def collect(self) -> list[Any]:
        """No results."""
        return []

    def gap_ns(self) -> float | None:
        """The median time between the work of two steps."""
        gaps = [began - ended for began, ended in zip(self._began[1:], self._ended, strict=False)]
        return median(gaps) if gaps else None


FRAMEWORK = NullFramework()


def block(arm: str, iterations: int, steps: int) -> tuple[int, int, float | None]:
    """Wall time, CPU time and gap in ns of one block, which contains no preparation and no reading."""
    marked = arm == "marked"
    pair = NullPair(iterations, steps, FRAMEWORK.arrivals if marked else None)
    FRAMEWORK.drains.clear()
    if marked:
        run_span(pair, FRAMEWORK, 0, steps)
    else:
        step = pair.step
        FRAMEWORK.synchronize()
        for index in range(steps):
            step(index)
        FRAMEWORK.synchronize()
    (wall, cpu), (wall_end, cpu_end) = FRAMEWORK.drains
    return wall_end - wall, cpu_end - cpu, pair.gap_ns()


def calibrate(target_ns: int) -> int:
    """Iterations of a step of about ``target_ns``, from the fastest of 50 measurements."""
    iterations = 1000
    fastest = min(block("bare", iterations, 1)[1] for _ in range(50))
    return max(1, round(iterations * target_ns / fastest))


def main() -> int:
    """Answer commands until end of file."""
    gc.freeze()
    gc.disable()  # as in a window
    for line in sys.stdin:
        command = json.loads(line)
        if "calibrate" in command:
            answer: dict[str, Any] = {"iterations": calibrate(command["calibrate"])}
        else:
            iterations, steps = command["iterations"], command["steps"]
            block("bare", iterations, 1)  # warm-up
            answer = {"blocks": [block(arm, iterations, steps) for arm in command["arms"]]}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
