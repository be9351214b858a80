"""``python -m suite bench-overhead``: what marks and telemetry cost, on fixed work, by interleaved pairs.

Both arms do the same work, right after each other: on, off, off, on or the other way round by chance, so that
a machine that speeds up or slows down favours neither. The cost is the 20 % trimmed mean of ln(on / off) with
its 95 % interval (Tukey and McLaughlin 1963; scipy.stats.mstats.trimmed_mean_ci). Trimming hides nothing
here, because the cost falls on every block alike: for marks a block is a window of 100 steps, each marked;
for telemetry it is the tenth of a second around one sample, so that telemetry at 1 Hz costs a tenth of what
such a block shows.

CPU time decides, because other processes on the machine lengthen wall time at random: a bar is met if the
upper end of the CPU interval is within it and the wall interval does not lie wholly above it. To the CPU time
beside the sampler the sampler's own is added in full, as if it always took the worker's core: an upper bound.
Undisturbed observations alone are used where there are enough of them: after another process had the core,
the caches are cold, and what is measured is that process. Where there are not enough, all are used, and no
miss can be shown. While the interval holds the bar, observations go on, to five times their number; looking
up to five times makes each of the two verdicts somewhat likelier to be wrong than one look would.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.telemetry.sampler import Sampler

TRIM = 0.2
FOOTNOTE = """\
20 % trimmed means of paired ln(on/off). CPU time decides; wall time, which other processes disturb, can only
refute. Telemetry's CPU time holds all that the sampling process used, as if it took the worker's core."""
Times = tuple[int, int]  # wall and CPU in ns
Observation = tuple[Times, Times]  # on, off


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: ``steps`` of about ``step_ns`` make a block, four blocks one observation."""

    name: str
    step_ns: int
    steps: int
    observations: int
    bar_percent: float
    telemetry: bool = False


MARKS = (
    Case("marks, steps of 5 ms", 5_000_000, 100, 60, 0.1),
    Case("marks, steps of 100 µs", 100_000, 100, 300, 1.0),
)
TELEMETRY = Case("telemetry at 1 Hz", 5_000_000, 20, 20, 0.5, telemetry=True)
LEAD_SECONDS = 0.95  # from a sample to the block around the next one
LEAST_OBSERVATIONS = 8
OWN_CORE = 0.99  # CPU time over wall time of a worker that nobody disturbs
QUIET_SHARE = 0.25  # of the observations must be undisturbed for a miss to be the suite's fault
PATIENCE = 5  # times the observations are made before an undecided case is left undecided
MET, MISSED, UNDECIDED = "met", "MISSED", "undecided"


@dataclass(frozen=True, slots=True)
class Cost:
    """Relative cost in percent with the ends of its 95 % interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class Worker:
    """The process of the null workload."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, **command: Any) -> Any:
        """Send one command and wait for its answer; RuntimeError where the process ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):  # it ended before it read: as if it ended before it answered
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the null workload ended with status {self._process.wait()}")
        return json.loads(line)

    def blocks(self, arms: Sequence[str], iterations: int, steps: int) -> list[Times]:
        """The times of one block for each arm."""
        times = self.ask(arms=list(arms), iterations=iterations, steps=steps)["times"]
        return [(wall, cpu) for wall, cpu in times]


@contextmanager
def started() -> Iterator[Worker]:
    """The null workload in a process of its own, as workers are."""
    with subprocess.Popen(
        [sys.executable, "-m", "suite.worker.overhead"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # closing writes what an ended worker did not read
                process.stdin.close()


def orders(count: int) -> Iterator[list[bool]]:
    """Which of four blocks are "on": first and last, or the middle two, by chance and equally often."""
    chance = random.Random(1)
    outer = [index % 2 == 0 for index in range(count)]
    chance.shuffle(outer)
    for first in outer:
        yield [first, not first, not first, first]


def observe_marks(worker: Worker, case: Case, count: int) -> Iterator[Observation]:
    """(with marks, without) of ``count`` observations."""
    iterations = worker.ask(calibrate=case.step_ns)["iterations"]
    for order in orders(count):
        blocks = worker.blocks(["marked" if on else "bare" for on in order], iterations, case.steps)
        yield by_arm(order, blocks)


def observe_telemetry(worker: Worker, case: Case, count: int) -> Iterator[Observation]:
    """(beside the sampler, without) of each observation."""
    iterations = worker.ask(calibrate=case.step_ns)["iterations"]
    sample_ns = sampler_cost(worker)
    for order in orders(count):
        times = [_block_around_sample(worker, case, iterations, on) for on in order]
        yield by_arm(
            order, [(wall, cpu + on * sample_ns) for on, (wall, cpu) in zip(order, times, strict=True)]
        )


def _block_around_sample(worker: Worker, case: Case, iterations: int, on: bool) -> Times:
    """A block that begins as long after the first sample as puts the second one inside it."""
    for _ in range(5):
        with Sampler(worker.pid, enabled=on) as sampler:
            if sampler.wait() is not on:
                raise RuntimeError("the sampler took no sample")
            time.sleep(LEAD_SECONDS)
            began = time.monotonic_ns()
            block = worker.blocks(["marked"], iterations, case.steps)[0]
            ended = time.monotonic_ns()
            if not on or any(began <= stamp <= ended for stamp, _, _ in sampler.stop()):
                return block
    raise RuntimeError("no sample fell into its block in five attempts")


def by_arm(order: Sequence[bool], blocks: Sequence[Times]) -> Observation:
    """Sums of the "on" blocks and of the others."""

    def total(wanted: bool) -> Times:
        chosen = [block for on, block in zip(order, blocks, strict=True) if on is wanted]
        return sum(wall for wall, _ in chosen), sum(cpu for _, cpu in chosen)

    return total(True), total(False)


def sampler_cost(worker: Worker, samples: int = 20) -> int:
    """CPU time in ns that the sampling process takes for one sample at 1 Hz."""
    with Sampler(worker.pid) as sampler:
        sampler.wait()
        time.sleep(samples + 0.5)
        taken = len(sampler.stop()) - 1  # the cost leaves out the first
    if sampler.cost_ns is None or taken < 1:
        raise RuntimeError(f"the sampler did not report its cost: {sampler.failure}")
    return sampler.cost_ns // taken


def relative_cost(on: Sequence[float], off: Sequence[float], part: float = 1.0) -> Cost:
    """Percent by which ``on`` exceeds ``off``, pair by pair, times ``part``: trimmed mean and interval."""
    from scipy.stats.mstats import trimmed_mean, trimmed_mean_ci

    logs = [math.log(a / b) for a, b in zip(on, off, strict=True)]
    low, high = trimmed_mean_ci(logs, limits=(TRIM, TRIM), alpha=0.05)
    middle = trimmed_mean(logs, limits=(TRIM, TRIM))
    return Cost(*(100 * part * math.expm1(float(value)) for value in (middle, low, high)))


def undisturbed(seen: Sequence[Observation], telemetry: bool) -> list[Observation]:
    """Observations in which the worker kept its core. The sampler may take it: that is what it costs."""

    def kept(times: Times) -> bool:
        return times[1] >= OWN_CORE * times[0]

    return [(on, off) for on, off in seen if kept(off) and (telemetry or kept(on))]


def judge(cpu: Cost, wall: Cost, bar_percent: float, quiet: bool) -> str:
    """``met``: shown by CPU time and not refuted by wall time.

    ``missed``: shown too, by an interval wholly above the bar; a busy machine cannot show that. An interval
    that holds the bar decides nothing.
    """
    if cpu.high <= bar_percent and wall.low <= bar_percent:
        return MET
    return MISSED if quiet and max(cpu.low, wall.low) > bar_percent else UNDECIDED


def measure(worker: Worker, case: Case, share: float) -> str:
    """Observe one case until it is decided or its patience ends, print its row, and return the verdict."""
    count = max(LEAST_OBSERVATIONS, round(case.observations * share))
    observe = observe_telemetry if case.telemetry else observe_marks
    seen: list[Observation] = []
    for _ in range(PATIENCE):
        seen += observe(worker, case, count)
        clean = undisturbed(seen, case.telemetry)
        quiet = len(clean) >= max(LEAST_OBSERVATIONS, len(seen) * QUIET_SHARE)
        used = clean if quiet else seen
        # A block around a sample stands for the whole second that the sample serves.
        part = case.step_ns * case.steps / 1e9 if case.telemetry else 1.0
        wall, cpu = (
            relative_cost([on[clock] for on, _ in used], [off[clock] for _, off in used], part)
            for clock in (0, 1)
        )
        verdict = judge(cpu, wall, case.bar_percent, quiet)
        if verdict != UNDECIDED:
            break
    counts = f"{len(used)}/{len(seen)}"
    print(f"{case.name:<23}{cpu!s:>25}{wall!s:>25}{case.bar_percent:>5}{counts:>9} {verdict}", flush=True)
    return verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Measure what the suite's own marks and telemetry cost, on fixed work, by interleaved pairs. "
        "Takes four to fifteen minutes; exit status 1 if a bar is missed."
    )
    parser.add_argument("--share", type=float, default=1.0, metavar="X",
                        help="this share of the observations, for a quick look (default: 1)")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Print the table; 0 if every bar is met, 1 if one is missed, 2 if that could not be found out."""
    if not 0 < args.share <= 100:
        print(f"bench-overhead: --share: expected a number above 0, found {args.share}", file=sys.stderr)
        return 2
    print(f"{'cost in %':<23}{'CPU time [95 %]':>25}{'wall time [95 %]':>25}{'bar':>5}{'used':>9}")
    try:
        with started() as worker:
            verdicts = [measure(worker, case, args.share) for case in (*MARKS, TELEMETRY)]
    except RuntimeError as problem:
        print(f"bench-overhead: {problem}", file=sys.stderr)
        return 2
    print(FOOTNOTE)
    if MISSED in verdicts:
        return 1
    if UNDECIDED in verdicts:
        print(
            "bench-overhead: this machine is too noisy to tell; run it again beside nothing else",
            file=sys.stderr,
        )
        return 2
    return 0
