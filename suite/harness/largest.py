"""``batch=max``: the largest batch that fits, found before the run by probes in workers of their own.

Batches are doubled from the workload's first until one does not fit, then the gap is halved down to a
sixteenth of the batch. A probe is a fresh worker that sets up, compiles and runs a few real steps. The batch
that comes out must also run all steps of a repeat; where it does not, the next smaller one is tried. None of
this is measured. On a CPU a probe may take 80 % of the memory that is left, and a minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from suite.containers.engines.attestation import EngineProblem
from suite.contract import STEPS, Key
from suite.contract.seeds import seed_of
from suite.harness.scratch import Scratch
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.plan.errors import EnvironmentProblem, Unsupported
from suite.plan.plan import BatchProbe, Plan
from suite.plan.prepared import Resources, with_batch
from suite.telemetry import cgroup
from suite.telemetry.reading import Unavailable
from suite.workloads import specification

FITS = "fits"
FEW = 3  # steps: the first captures, the second replays, the third finds the memory of both taken
_MOST = 1 << 30
_GRAIN = 16  # of a batch: how near the search comes to the edge
_TIMEOUT_S = 900.0  # of silence: captures and compilations are long
_CPU_TIMEOUT_S = 60.0  # of a few steps
_ROOM = 0.8  # of a CPU's memory; the rest is for what else grows over a run
# Failures that a smaller batch may fix. Any other ends the search.
_TOO_LARGE = ("out_of_memory", "killed", "timed_out", "crashed", "dataset")

Probe = Callable[[int, int], str]  # batch, steps -> FITS or why not


def find_largest(plan: Plan, resources: Resources, say: Callable[[str], None]) -> Plan:
    """``plan`` with the largest batch that fits, and the account of the search; as it is unless asked for.

    Unsupported where not even a batch of one fits; EnvironmentProblem where workers fail for other reasons.
    """
    if not plan.settings.batch_max:
        return plan
    tried: list[BatchProbe] = []
    with contextlib.ExitStack() as stack:
        scratch = Scratch(plan.settings.cache_dir)
        stack.callback(scratch.remove)
        prober = Prober(plan, resources, scratch.folder("probe"))

        def probe(batch: int, steps: int) -> str:
            outcome = prober(batch, steps)
            tried.append((batch, steps, outcome))
            say(f"batch {batch:,}, {steps} steps: {outcome.replace('_', ' ')}")
            return outcome

        found = search(plan.key.batch, probe)
    if found is None:
        told = ", ".join(f"{batch} {outcome.replace('_', ' ')}" for batch, _, outcome in tried)
        raise Unsupported(f"batch: max expected a batch that fits, found none: {told}; {prober.last}")
    say(f"batch {found:,} is the largest that fits")
    return with_batch(plan, found, search=tuple(tried))


def search(first: int, probe: Probe) -> int | None:
    """The largest batch that fits, to a sixteenth, all steps of a repeat included; None where none does."""
    low, high = _bracket(first, probe)
    while low is not None:
        while high is not None:
            step = _grain(low)
            middle = (low + high) // 2 // step * step
            if middle <= low:
                break
            low, high = (middle, high) if probe(middle, FEW) == FITS else (low, middle)
        if probe(low, STEPS) == FITS:
            return low
        low = low - _grain(low) or None
        high = None
    return None


def _bracket(first: int, probe: Probe) -> tuple[int | None, int | None]:
    """A batch that fits and one, twice as large, that does not; None where there is no such batch."""
    if probe(first, FEW) == FITS:
        low = first
        while low < _MOST and probe(2 * low, FEW) == FITS:
            low *= 2
        return low, 2 * low if low < _MOST else None
    high = first
    while high > 1:
        low = high // 2
        if probe(low, FEW) == FITS:
            return low, high
        high = low
    return None, high


def _grain(batch: int) -> int:
    """The largest power of two in a sixteenth of ``batch``; from 128 on a multiple of 8."""
    return 1 << max(0, (batch // _GRAIN).bit_length() - 1)


@dataclass
class Prober:
    """Runs probes of one plan, and on a CPU bounds what they may take."""

    plan: Plan
    resources: Resources
    scratch: Path
    last: str = ""  # what the last worker that failed said
    _taken: list[tuple[int, int]] = field(default_factory=list)  # batch, most bytes resident; ascending

    def __call__(self, batch: int, steps: int) -> str:
        """``fits``, or one word why ``steps`` steps of ``batch`` do not."""
        plan = with_batch(self.plan, batch, soak_ns=0, tail_ns=0)
        try:
            specification(plan.key.workload).units(cast("Key", plan.key), self._seed)
        except ValueError as error:
            self.last = str(error)
            return "not_countable"
        room = self._room()
        if room is not None and self._expected(batch) > room:
            self.last = f"it would take more than {room >> 20} MiB"
            return "beyond_memory"
        try:
            imported, resident = self._run(plan, steps)
        except WorkerFailure as failure:
            if failure.code not in _TOO_LARGE:
                raise EnvironmentProblem(f"batch: max cannot try {batch}: {failure.message}") from failure
            self.last = failure.message
            return failure.code
        self._taken = sorted([*(self._taken or [(0, imported)]), (batch, resident)])
        if room is not None and resident > room:
            self.last = f"it took {resident >> 20} MiB, more than {room >> 20} MiB"
            return "beyond_memory"
        return FITS

    @property
    def _seed(self) -> int:
        return seed_of(self.plan.settings.nonce, self.plan.run_id, 0)

    def _run(self, plan: Plan, steps: int) -> tuple[int, int]:
        """Most bytes of host memory that a worker had resident: once imported, and in ``steps`` steps."""
        workers = self.resources.workers
        debug = plan.settings.results_dir / f"{plan.run_id}.debug"
        debug.mkdir(parents=True, exist_ok=True)
        with WorkerProcess(
            self.resources.command(0, self.scratch),
            debug / f"probe-{plan.key.batch}.log",
            lambda: workers.ended(0),
            lambda: workers.remove(0),
        ) as worker:
            job = self.resources.job(plan, 0, self._seed, self.scratch)
            worker.configure(job | {"probe_steps": steps, "world_size": 1})
            worker.expect("hello", _TIMEOUT_S)
            with contextlib.suppress(EngineProblem):  # so that the engine can tell how it ended
                workers.attest(0, worker.pid)
            hasty = plan.device == "cpu" and steps == FEW
            event, _ = worker.expect("probed", _CPU_TIMEOUT_S if hasty else _TIMEOUT_S)
            worker.expect("done", _TIMEOUT_S)
        return int(event["imported_bytes"]), int(event["peak_rss_bytes"])

    def _expected(self, batch: int) -> int:
        """Resident bytes of ``batch``, on the line through the two largest batches tried; 0 where unknown."""
        if not self._taken:
            return 0
        (batch_0, bytes_0), (batch_1, bytes_1) = self._taken[-2:]
        return bytes_1 + (batch - batch_1) * max(0, bytes_1 - bytes_0) // max(1, batch_1 - batch_0)

    def _room(self) -> int | None:
        """Bytes that a worker may take on a CPU; None on a GPU, whose own memory is the limit."""
        if self.plan.device != "cpu":
            return None
        found = [limit for limit in (self.plan.limits.memory_bytes, _group_limit()) if limit is not None]
        return int(_ROOM * min([*found, _available()]))


def _group_limit() -> int | None:
    """The memory limit of this process's control groups in bytes."""
    try:
        limits, _ = cgroup.limits(cgroup.locate("self"))
    except (Unavailable, OSError):
        return None
    found = limits["memory_limit_bytes"]
    return None if found is None else int(found)


def _available() -> int:
    """Bytes that the machine can give without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    raise EnvironmentProblem("batch: max expected MemAvailable in /proc/meminfo, found none; give a batch")
