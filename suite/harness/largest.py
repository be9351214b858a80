"""``batch=max``: the largest batch that fits, found before the run by probes in separate workers.

Batches are doubled from the workload's first until one does not fit, then the gap is halved down to a
sixteenth of the batch. A probe is a fresh worker, with all its ranks: it sets up, compiles and runs a few
steps. The batch found must also complete all steps of a repeat; if it does not, the next smaller one is
tried. Probes are not timed. On a CPU a probe may use 80 % of the available memory and one minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

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
FEW = 3  # steps: the first captures, the second replays, the third runs with the memory of both in use
_MAX_BATCH = 1 << 30
_RESOLUTION = 16  # the search ends at a sixteenth of the batch
_TIMEOUT_S = 900.0  # without an event: captures and compilations are long
_CPU_TIMEOUT_S = 60.0  # for a few steps
_ROOM = 0.8  # of the host memory on a CPU; the rest is a reserve for growth during a run
# Failures that a smaller batch may avoid. Any other failure ends the search.
_TOO_LARGE = ("out_of_memory", "killed", "timed_out", "crashed", "dataset")

RunProbe = Callable[[int, int], str]  # batch, steps -> FITS or the reason why not


def find_largest(plan: Plan, resources: Resources, report: Callable[[str], None]) -> Plan:
    """``plan`` with the largest batch that fits and the list of probes; unchanged without ``batch=max``.

    Unsupported if not even a batch of one fits; EnvironmentProblem if workers fail for other reasons.
    """
    if not plan.settings.batch_max:
        return plan
    tried: list[BatchProbe] = []
    with contextlib.ExitStack() as stack:
        scratch = Scratch(plan.settings.cache_dir)
        stack.callback(scratch.remove)
        prober = BatchProber(plan, resources, scratch.folder("probe"))

        def probe(batch: int, steps: int) -> str:
            outcome = prober(batch, steps)
            tried.append((batch, steps, outcome))
            report(f"batch {batch:,}, {steps} steps: {outcome.replace('_', ' ')}")
            return outcome

        found = search(plan.key.batch, probe)
    if found is None:
        outcomes = ", ".join(f"{batch} {outcome.replace('_', ' ')}" for batch, _, outcome in tried)
        raise Unsupported(
            f"batch: max expected a batch that fits, found none: {outcomes}; {prober.last_failure}"
        )
    report(f"batch {found:,} is the largest that fits")
    return with_batch(plan, found, search=tuple(tried))


def search(first: int, probe: RunProbe) -> int | None:
    """The largest batch that completes all steps of a repeat, to a sixteenth; None if there is none."""
    low, high = _bracket(first, probe)
    while low is not None:
        while high is not None:
            step = _search_step(low)
            middle = (low + high) // 2 // step * step
            if middle <= low:
                break
            low, high = (middle, high) if probe(middle, FEW) == FITS else (low, middle)
        if probe(low, STEPS) == FITS:
            return low
        low = low - _search_step(low) or None
        high = None
    return None


def _bracket(first: int, probe: RunProbe) -> tuple[int | None, int | None]:
    """A batch that fits and one, twice as large, that does not; None if there is no such batch."""
    if probe(first, FEW) == FITS:
        low = first
        while low < _MAX_BATCH and probe(2 * low, FEW) == FITS:
            low *= 2
        return low, 2 * low if low < _MAX_BATCH else None
    high = first
    while high > 1:
        low = high // 2
        if probe(low, FEW) == FITS:
            return low, high
        high = low
    return None, high


def _search_step(batch: int) -> int:
    """The largest power of two in a sixteenth of ``batch``; from 128 on a multiple of 8."""
    return 1 << max(0, (batch // _RESOLUTION).bit_length() - 1)


@dataclass
class BatchProber:
    """Runs probes of one plan; on a CPU it bounds their memory and time."""

    plan: Plan
    resources: Resources
    scratch: Path
    last_failure: str = ""  # message of the last failed probe
    _resident: list[tuple[int, int]] = field(default_factory=list)  # batch, peak resident bytes; ascending

    def __call__(self, batch: int, steps: int) -> str:
        """Run ``steps`` steps of ``batch``: ``fits``, or the reason why not, such as ``out_of_memory``."""
        plan = with_batch(self.plan, batch, soak_ns=0, tail_ns=0)
        try:
            specification(plan.key.workload).units(cast("Key", plan.key), self._seed)
        except ValueError as error:
            self.last_failure = str(error)
            return "not_countable"
        room = self._usable_bytes()
        if room is not None and self._predicted_bytes(batch) > room:
            self.last_failure = f"it would need more than {room >> 20} MiB"
            return "beyond_memory"
        try:
            imported, resident = self._run(plan, steps)
        except WorkerFailure as failure:
            if failure.code not in _TOO_LARGE:
                raise EnvironmentProblem(f"batch: max cannot try {batch}: {failure.message}") from failure
            self.last_failure = failure.message
            return failure.code
        self._resident = sorted([*(self._resident or [(0, imported)]), (batch, resident)])
        if room is not None and resident > room:
            self.last_failure = f"it used {resident >> 20} MiB, more than {room >> 20} MiB"
            return "beyond_memory"
        return FITS

    @property
    def _seed(self) -> int:
        return seed_of(self.plan.settings.nonce, self.plan.run_id, 0)

    def _run(self, plan: Plan, steps: int) -> tuple[int, int]:
        """Peak resident bytes of host memory of all ranks: after the imports, and in ``steps`` steps."""
        name = f"probe-{plan.key.batch}"
        events = run_probe(plan, self.resources, self.scratch, steps, name)
        imported, resident = (
            sum(int(event[name]) for event in events) for name in ("imported_bytes", "peak_rss_bytes")
        )
        return imported, resident

    def _predicted_bytes(self, batch: int) -> int:
        """Resident bytes of ``batch``, on the line through the two largest tried batches; 0 if unknown."""
        if not self._resident:
            return 0
        (batch_0, bytes_0), (batch_1, bytes_1) = self._resident[-2:]
        return bytes_1 + (batch - batch_1) * max(0, bytes_1 - bytes_0) // max(1, batch_1 - batch_0)

    def _usable_bytes(self) -> int | None:
        """Bytes that a worker may use on a CPU; None on a GPU, where the device memory is the limit."""
        if self.plan.device != "cpu":
            return None
        found = [limit for limit in (self.plan.limits.memory_bytes, _group_limit()) if limit is not None]
        return int(_ROOM * min([*found, _available()]))


def run_probe(plan: Plan, resources: Resources, scratch: Path, steps: int, name: str) -> list[dict[str, Any]]:
    """Run ``steps`` untimed steps in a worker of their own; what each rank reports. Raises WorkerFailure.

    ``name`` is that of the file for the worker's debug text.
    """
    workers = resources.workers
    debug = plan.settings.results_dir / f"{plan.run_id}.debug"
    debug.mkdir(parents=True, exist_ok=True)
    with WorkerProcess(
        resources.command(0, scratch),
        debug / f"{name}.log",
        lambda: workers.ended(0),
        lambda: workers.remove(0),
    ) as worker:
        job = resources.job(plan, 0, seed_of(plan.settings.nonce, plan.run_id, 0), scratch)
        worker.configure(job | {"probe_steps": steps})
        worker.expect_all("hello", _TIMEOUT_S)
        with contextlib.suppress(EngineProblem):  # so that the engine can report how it ended
            workers.attest(0, worker.pid)
        short = plan.device == "cpu" and steps == FEW
        events, _ = worker.expect_all("probed", _CPU_TIMEOUT_S if short else _TIMEOUT_S)
        worker.expect_all("done", _TIMEOUT_S)
    return events


def _group_limit() -> int | None:
    """The memory limit of this process's control groups in bytes; None without one."""
    try:
        limits, _ = cgroup.limits(cgroup.locate("self"))
    except (Unavailable, OSError):
        return None
    found = limits["memory_limit_bytes"]
    return None if found is None else int(found)


def _available() -> int:
    """Available bytes of host memory (MemAvailable); EnvironmentProblem if unknown."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    raise EnvironmentProblem("batch: max expected MemAvailable in /proc/meminfo, found none; give a batch")
