"""Time the work of a submission under another name, from another seed, and with a larger batch.

The batch is larger because every specification counts the work of any batch, every pair accepts any, and the
shape of every activation changes. Every round runs each variant once, so that a drifting machine affects all
of them. The time of a variant is the CPU time of the worker on a CPU, and the window on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from suite.audit.perturbed import Timed, factor
from suite.containers.engines.workers import ContainerWorkers
from suite.contract import MEASURED_STEPS, Key
from suite.contract.seeds import seed_of
from suite.harness.scratch import Scratch
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.plan.errors import BadConfiguration, EnvironmentProblem
from suite.plan.prepared import PreparedRun, Resources
from suite.replay.renamed import copy_renamed, renamed_text
from suite.workloads import specification

_SETUP_S, _STEPS_S = 1800.0, 3600.0


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant of the work: the name of its workload, its key and its seed."""

    title: str
    name: str
    key: Key
    seed: int


def measure(prepared: PreparedRun, nonce: str, rounds: int, grow: int | None = None) -> list[Timed]:
    """Time the work of ``prepared`` unchanged, renamed, and renamed with larger batches, ``rounds`` times.

    ``grow`` is the first larger batch over that of the submission; None: :func:`suite.audit.perturbed.factor`
    of the time of the renamed work. ``nonce`` (64 hexadecimal digits) determines the name and the seed.
    Raises a Refusal if a worker fails.
    """
    if rounds < 1:
        raise BadConfiguration(f"repeats: expected at least 1, found {rounds}")
    key = prepared.plan.key
    if not isinstance(key, Key):
        raise BadConfiguration("perturb: expected a run of train or infer, found a conversion")
    name, seed = f"w{nonce[:8]}", seed_of(nonce, prepared.plan.run_id, 0)
    with variant_runner(prepared, name) as run:
        small = [
            Variant("as it is", key.workload, key, prepared.seed(0)),
            Variant("renamed", name, key, seed),
        ]
        times: dict[str, list[int]] = {}
        _time_round(small, run, times)
        first = factor(min(times["renamed"])) if grow is None else grow
        large = larger_batches(key, name, seed, first)
        _time_round(large, run, times)
        for _ in range(rounds - 1):
            _time_round([*small, *large], run, times)
    flop = specification(key.workload).window_flop
    return [Timed(one.title, flop(one.key), tuple(times[one.title])) for one in (*small, *large)]


def larger_batches(key: Key, name: str, seed: int, first: int) -> list[Variant]:
    """Variants of ``key`` on synthetic data with ``first``, then two and four times ``first``, its batch."""
    batches = [key.batch * first * multiple for multiple in (1, 2, 4)]
    return [
        Variant(f"{name}, batch {batch}", name, replace(key, batch=batch, data="synthetic"), seed)
        for batch in batches
    ]


def _time_round(variants: list[Variant], run: Callable[[Variant], int], times: dict[str, list[int]]) -> None:
    for variant in variants:
        time_ns = run(variant)
        times.setdefault(variant.title, []).append(time_ns)
        print(f"{variant.title}: {time_ns / 1e9:.3f} s for 100 steps", file=sys.stderr, flush=True)


@contextmanager
def variant_runner(prepared: PreparedRun, name: str) -> Iterator[Callable[[Variant], int]]:
    """Give a function that runs one repeat of a variant and returns its time in nanoseconds."""
    scratch = Scratch(prepared.plan.settings.cache_dir)
    workload = prepared.plan.key.workload
    try:
        code = scratch.folder("code")
        copy_renamed(workload, name, code)
        pair = _renamed_pair(prepared, name, code)
        count = 0

        def run(variant: Variant) -> int:
            nonlocal count
            count += 1
            renamed = (code, pair) if variant.name != workload else None
            return _run_variant(prepared, variant, scratch.folder(f"repeat-{count}"), renamed)

        yield run
    finally:
        scratch.remove()


def _renamed_pair(prepared: PreparedRun, name: str, code: Path) -> Path | None:
    """Copy the submitter's custom pair with renamed imports; returns its path, None without a custom pair."""
    custom_pair = prepared.resources.custom.pair
    if custom_pair is None:
        return None
    path = code / "pair.py"
    text = renamed_text(custom_pair.read_text("utf-8"), prepared.plan.key.workload, name)
    path.write_text(text, "utf-8")
    return path


def _run_variant(
    prepared: PreparedRun, variant: Variant, scratch: Path, renamed: tuple[Path, Path | None] | None
) -> int:
    resources = _with_code(prepared.resources, renamed)
    command, workers = resources.command(0, scratch), resources.workers
    if renamed is not None and not isinstance(workers, ContainerWorkers):
        command = replace(command, environment={**command.environment, "PYTHONPATH": str(renamed[0])})
    job = resources.job(prepared.plan, 0, variant.seed, scratch) | {
        "tail_ns": 0,
        "measured_steps": MEASURED_STEPS,
    }
    changed = {"workload": variant.name, "batch": variant.key.batch, "data": variant.key.data}
    job["key"] = {**job["key"], **changed}
    if variant.key.data == "synthetic":
        job |= {"data_dir": "", "loader": "native"}
    debug = scratch.with_name(scratch.name + ".log")
    try:
        with WorkerProcess(command, debug, lambda: workers.ended(0), lambda: workers.remove(0)) as worker:
            worker.configure(job)
            worker.expect_all("hello", _SETUP_S)
            workers.attest(0, worker.pid)
            worker.expect_all("window_open", _SETUP_S + _STEPS_S)
            worker.command("go")
            (closed, *_), _ = worker.expect_all("window_close", _STEPS_S)
            worker.command("tail")
            worker.expect_all("steps", _SETUP_S)
            ends, _ = worker.expect_all("repeat_end", _SETUP_S)
            if variant.key.exchanges:
                worker.expect_all("exchange_sweep", _SETUP_S)
            worker.expect_all("done", _SETUP_S)
    except WorkerFailure as failure:
        raise EnvironmentProblem(
            f"{variant.title}: the worker failed ({failure.code} in phase {failure.phase}): {failure.message}"
        ) from failure
    if prepared.plan.device == "cpu":
        return sum(int(end["cpu_time_ns"]) for end in ends)
    return int(closed["close_ns"]) - int(closed["open_ns"])


def _with_code(resources: Resources, renamed: tuple[Path, Path | None] | None) -> Resources:
    """``resources`` with workers that use the renamed code and pair; a container has them mounted."""
    if renamed is None:
        return resources
    code, pair = renamed
    workers = resources.workers
    if isinstance(workers, ContainerWorkers):
        return replace(resources, workers=replace(workers, code=code, pair=pair))
    return replace(resources, workers=replace(workers, pair=pair))  # type: ignore[type-var]
