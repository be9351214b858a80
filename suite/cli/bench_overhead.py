"""``python -m suite bench-overhead``: the cost of timestamps and telemetry, in percent of the steps.

**Direct cost.** Timestamps: the time from the end of one step's work to the beginning of the next one's,
in the timing loop minus in a plain loop. It is measured where it is spent, among steps of the stated
length, to tens of nanoseconds. Telemetry: the CPU time of the sampling process for one sample, as if it
used the worker's core.

**All effects**, such as caches that the suite's instructions displace: the CPU and wall times of blocks
of steps with and without, which do the same work in succession: on, off, off, on or the reverse at
random, so that a machine that speeds up or slows down favours neither. Such four blocks are one
observation. The cost is the Hodges-Lehmann estimate of ln(on / off), the median of all means of two
observations, with the interval of Wilcoxon's signed ranks: a disturbed block counts as one rank, however
long it took. Blocks of a shared machine differ by percents, so that these intervals are often wider than
the limit.

A limit is met if the upper end of the interval of the direct cost is within it, and neither the interval
of CPU nor that of wall time is wholly above it. If there are enough undisturbed observations, only those
are used: after another process had the core, the caches are cold. If there are not enough, all are used,
and a miss by all effects cannot be shown.

Each case is evaluated at most five times; it ends with the first evaluation that decides, or when its
time is over: under three minutes in all. The five intervals together contain the cost with 95 %
confidence. Exit codes: 0 every limit is met · 1 one is missed · 2 one could not be shown to be met.
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
from itertools import combinations_with_replacement
from pathlib import Path
from statistics import NormalDist, median
from typing import Any, NamedTuple

from suite.cli.guard import UsageError
from suite.telemetry.sampler import Sampler

FOOTNOTE = """\
Direct: what timestamps add between the work of two steps, or the CPU time of the sampling process. CPU and
wall time: Hodges-Lehmann estimates of paired ln(on/off) of blocks of steps, which contain all effects and
other processes disturb; they can only refute that a limit is met."""
Times = tuple[int, int]  # wall and CPU in ns


class Observation(NamedTuple):
    """The times of steps with and without what is measured, and its direct cost in percent of a step."""

    on: Times
    off: Times
    direct: float


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: ``steps`` of about ``step_ns`` make a block, four blocks one observation.

    A window has 100 steps. Fewer steps give more observations in ``seconds``, and increase the weight of what
    a window does once, so that the bound also holds for a window.
    """

    name: str
    step_ns: int
    steps: int
    seconds: float  # until the last evaluation
    limit_percent: float
    telemetry: bool = False


CASES = (
    Case("timestamps, steps of 5 ms", 5_000_000, 10, 60.0, 0.1),
    Case("timestamps, steps of 100 µs", 100_000, 100, 20.0, 1.0),
    Case("telemetry at 1 Hz", 5_000_000, 20, 60.0, 0.5, telemetry=True),
)
CONFIDENCE, EVALUATIONS = 0.95, 5
LEAD_SECONDS = 0.95  # between a sample and the block around the next one
COST_SAMPLES = 8  # whose mean CPU time is the cost of one
LEAST_OBSERVATIONS = 8
OWN_CORE = 0.99  # CPU time over wall time of an undisturbed worker
QUIET_SHARE = 0.25  # of the observations must be undisturbed to show a miss
MET, MISSED, UNDECIDED = "met", "MISSED", "not shown"


@dataclass(frozen=True, slots=True)
class Cost:
    """Relative cost in percent with the ends of its interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class NullWorkload:
    """The process of the null workload."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, **command: Any) -> Any:
        """Send one command and return its answer; RuntimeError if the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):  # it ended before it read the command
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the null workload ended with status {self._process.wait()}")
        return json.loads(line)

    def blocks(self, arms: Sequence[str], iterations: int, steps: int) -> list[tuple[Times, float]]:
        """The times of one block for each arm, and the gap between the work of its steps in ns."""
        blocks = self.ask(arms=list(arms), iterations=iterations, steps=steps)["blocks"]
        return [((wall, cpu), gap) for wall, cpu, gap in blocks]


@contextmanager
def started() -> Iterator[NullWorkload]:
    """The null workload in a separate process, as a worker."""
    with subprocess.Popen(
        [sys.executable, "-m", "suite.worker.overhead"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    ) as process:
        try:
            yield NullWorkload(process)
        finally:
            process.kill()
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # closing flushes what an ended worker did not read
                process.stdin.close()


def orders() -> Iterator[list[bool]]:
    """Endless orders of four blocks: the outer or the inner two are "on", at random and equally often."""
    chance = random.Random(1)
    while True:
        outer = [True, True, False, False]
        chance.shuffle(outer)
        for first in outer:
            yield [first, not first, not first, first]


def observe_timestamps(worker: NullWorkload, case: Case) -> Iterator[Observation]:
    """Endless observations: (with timestamps, without)."""
    iterations = worker.ask(calibrate=case.step_ns)["iterations"]
    for order in orders():
        blocks = worker.blocks(["marked" if on else "bare" for on in order], iterations, case.steps)
        on, off = by_arm(order, [times for times, _ in blocks])
        more = sum(gap if on else -gap for on, (_, gap) in zip(order, blocks, strict=True)) / 2
        yield Observation(on, off, 100 * more / case.step_ns)


def observe_telemetry(worker: NullWorkload, case: Case) -> Iterator[Observation]:
    """Endless observations: (with the sampler, without)."""
    iterations = worker.ask(calibrate=case.step_ns)["iterations"]
    sample_ns = sampler_cost(worker)
    for order in orders():
        times = [_block_around_sample(worker, case, iterations, on) for on in order]
        summed = by_arm(
            order, [(wall, cpu + on * sample_ns) for on, (wall, cpu) in zip(order, times, strict=True)]
        )
        yield Observation(*summed, 100 * sample_ns / 1e9)


def _block_around_sample(worker: NullWorkload, case: Case, iterations: int, on: bool) -> Times:
    """The times of a block, started so that the second sample falls into it."""
    for _ in range(5):
        with Sampler(worker.pid, enabled=on) as sampler:
            if sampler.wait() is not on:
                raise RuntimeError("the sampler took no sample")
            time.sleep(LEAD_SECONDS)
            began = time.monotonic_ns()
            (block, _), *_ = worker.blocks(["marked"], iterations, case.steps)
            ended = time.monotonic_ns()
            if not on or any(began <= stamp <= ended for stamp, _, _ in sampler.stop()):
                return block
    raise RuntimeError("no sample fell into its block in five attempts")


def by_arm(order: Sequence[bool], blocks: Sequence[Times]) -> tuple[Times, Times]:
    """Sums of the "on" blocks and of the others."""

    def total(wanted: bool) -> Times:
        chosen = [block for on, block in zip(order, blocks, strict=True) if on is wanted]
        return sum(wall for wall, _ in chosen), sum(cpu for _, cpu in chosen)

    return total(True), total(False)


def sampler_cost(worker: NullWorkload) -> int:
    """CPU time in ns that the sampling process takes for one sample at 1 Hz."""
    with Sampler(worker.pid) as sampler:
        sampler.wait()
        time.sleep(COST_SAMPLES + 0.5)
        taken = len(sampler.stop()) - 1  # the cost excludes the first
    if sampler.cost_ns is None or taken < 1:
        raise RuntimeError(f"the sampler did not report its cost: {sampler.failure}")
    return sampler.cost_ns // taken


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Cost:
    """The middle of ``values`` by Hodges and Lehmann 1963, with its interval.

    That of Wilcoxon's signed ranks in its normal approximation, which holds from about eight values.
    """
    means = sorted((a + b) / 2 for a, b in combinations_with_replacement(values, 2))
    n = len(values)
    spread = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    outside = max(0, math.floor(n * (n + 1) / 4 - spread))
    return Cost(median(means), means[outside], means[-1 - outside])


def relative_cost(
    on: Sequence[float], off: Sequence[float], part: float = 1.0, confidence: float = CONFIDENCE
) -> Cost:
    """Percent by which ``on`` exceeds ``off``, pair by pair, times ``part``, with its interval."""
    cost = estimate([math.log(a / b) for a, b in zip(on, off, strict=True)], confidence)
    return Cost(*(100 * part * math.expm1(value) for value in (cost.middle, cost.low, cost.high)))


def undisturbed(seen: Sequence[Observation], telemetry: bool) -> list[Observation]:
    """Observations in which the worker kept its core; with ``telemetry`` the sampler may take it."""

    def kept_core(times: Times) -> bool:
        return times[1] >= OWN_CORE * times[0]

    return [one for one in seen if kept_core(one.off) and (telemetry or kept_core(one.on))]


def verdict_of(direct: Cost, cpu: Cost, wall: Cost, limit_percent: float, quiet: bool) -> str:
    """``met`` if the direct cost shows it and neither CPU nor wall time refutes it.

    ``MISSED`` if the interval of the direct cost is wholly above the limit, or another one is and ``quiet``
    (the observations are undisturbed). Otherwise the outcome is not shown.
    """
    if direct.high <= limit_percent and max(cpu.low, wall.low) <= limit_percent:
        return MET
    if direct.low > limit_percent or (quiet and max(cpu.low, wall.low) > limit_percent):
        return MISSED
    return UNDECIDED


def measure(worker: NullWorkload, case: Case, share: float) -> str:
    """Observe a case until it is decided or its time is over; print and return the verdict."""
    observe = observe_telemetry if case.telemetry else observe_timestamps
    began = time.monotonic()
    evaluation, seen = 1, list[Observation]()
    for observation in observe(worker, case):
        seen.append(observation)
        part = (time.monotonic() - began) / (case.seconds * share)
        if len(seen) < LEAST_OBSERVATIONS or part < evaluation / EVALUATIONS:
            continue
        verdict, direct, line = _evaluate(case, seen)
        evaluation = math.floor(part * EVALUATIONS) + 1
        if verdict != UNDECIDED or evaluation > EVALUATIONS:
            break
    print(line, flush=True)
    bound = f"{case.name}: directly at most {max(direct.high, 0.0):.3f} % with {CONFIDENCE:.0%} confidence"
    print(f"  {bound}; limit {case.limit_percent} %: {verdict}", flush=True)
    return verdict


def _evaluate(case: Case, seen: Sequence[Observation]) -> tuple[str, Cost, str]:
    """The verdict on the observations so far, the direct cost, and the row of the table."""
    clean = undisturbed(seen, case.telemetry)
    quiet = len(clean) >= max(LEAST_OBSERVATIONS, len(seen) * QUIET_SHARE)
    used = clean if quiet else seen
    # A block around a sample stands for the whole second that the sample serves.
    part = case.step_ns * case.steps / 1e9 if case.telemetry else 1.0
    confidence = 1 - (1 - CONFIDENCE) / EVALUATIONS
    direct = estimate([one.direct for one in used], confidence)
    wall, cpu = (
        relative_cost([one.on[clock] for one in used], [one.off[clock] for one in used], part, confidence)
        for clock in (0, 1)
    )
    counts = f"{len(used)}/{len(seen)}"
    return (
        verdict_of(direct, cpu, wall, case.limit_percent, quiet),
        direct,
        f"{case.name:<28}{direct!s:>25}{cpu!s:>25}{wall!s:>25}{counts:>9}",
    )


def main(args: argparse.Namespace) -> int:
    """Print the costs; the exit code as above."""
    print(f"{'cost in %':<28}{'direct [95 %]':>25}{'CPU time [95 %]':>25}{'wall time [95 %]':>25}{'used':>9}")
    try:
        with started() as worker:
            verdicts = [measure(worker, case, args.share) for case in CASES]
    except RuntimeError as problem:
        raise UsageError(str(problem)) from problem
    print(FOOTNOTE)
    if MISSED in verdicts:
        return 1
    if UNDECIDED in verdicts:
        print(
            "bench-overhead: other processes disturbed the measurement: it shows the intervals above only",
            file=sys.stderr,
        )
        return 2
    return 0
