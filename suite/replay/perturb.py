"""The work of a submission under another name, from another seed, and widened: timed, for the judge.

The knob is the batch: every specification counts the work of any batch, every pair takes any, and no shape of
an activation stays what it was. Variants take turns, so that what else the machine does meets all of them.
On a processor their time is that which the worker's threads had, on a GPU the window.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.audit.perturbed import Timed, factor
from suite.containers.engines.native import WorkerCommand
from suite.containers.engines.workers import ContainerWorkers
from suite.contract import Key
from suite.contract.seeds import seed_of
from suite.harness.scratch import Scratch
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.plan.errors import BadConfiguration, EnvironmentProblem
from suite.plan.prepared import PreparedRun, Resources
from suite.replay.renamed import rename, renamed_text
from suite.workloads import specification

_SETUP_S, _STEPS_S = 1800.0, 3600.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the work: under which name, with which key and seed."""

    title: str
    name: str
    key: Key
    seed: int


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(prepared: PreparedRun, nonce: str, rounds: int, grow: int | None = None) -> list[Timed]:
    """Times of the work of ``prepared`` as it is, renamed, and renamed and widened, ``rounds`` times each.

    ``grow`` is how much wider the first widened batch is than the submission's; None: as
    :func:`suite.audit.perturbed.factor` finds from the time of a renamed step. ``nonce`` (64 hexadecimal
    digits) decides name and seed. Raises a Refusal where a worker fails.
    """
    if rounds < 1:
        raise BadConfiguration(f"repeats: expected at least 1, found {rounds}")
    key = prepared.plan.key
    if not isinstance(key, Key):
        raise BadConfiguration("perturb: expected a benchmark, found a conversion, which computes nothing")
    name, seed = f"w{nonce[:8]}", seed_of(nonce, prepared.plan.run_id, 0)
    with runner(prepared, name) as run:
        narrow = [
            Variant("as it is", key.workload, key, prepared.seed(0)),
            Variant("renamed", name, key, seed),
        ]
        times: dict[str, list[int]] = {}
        _round(narrow, run, times)
        first = factor(min(times["renamed"])) if grow is None else grow
        wide = widened(key, name, seed, first)
        _round(wide, run, times)
        for _ in range(rounds - 1):
            _round([*narrow, *wide], run, times)
    flop = specification(key.workload).window_flop
    return [Timed(one.title, flop(one.key), tuple(times[one.title])) for one in (*narrow, *wide)]


def widened(key: Key, name: str, seed: int, first: int) -> list[Variant]:
    """``key`` on synthetic data with a batch ``first`` times as large, then of twice and four times that."""
    batches = [key.batch * first * more for more in (1, 2, 4)]
    return [
        Variant(f"{name}, batch {batch}", name, replace(key, batch=batch, data="synthetic"), seed)
        for batch in batches
    ]


def _round(variants: list[Variant], run: Callable[[Variant], int], times: dict[str, list[int]]) -> None:
    for variant in variants:
        window = run(variant)
        times.setdefault(variant.title, []).append(window)
        _say(f"{variant.title}: {window / 1e9:.3f} s for 100 steps")


@contextmanager
def runner(prepared: PreparedRun, name: str) -> Iterator[Callable[[Variant], int]]:
    """A function that runs one repeat of a variant and returns its time in nanoseconds."""
    scratch = Scratch(prepared.plan.settings.cache_dir)
    workload = prepared.plan.key.workload
    try:
        code = scratch.folder("code")
        rename(workload, name, code)
        pair = _renamed_pair(prepared, name, code)
        count = 0

        def run(variant: Variant) -> int:
            nonlocal count
            count += 1
            other = variant.name != workload
            return _one(prepared, variant, scratch.folder(f"repeat-{count}"), (code, pair) if other else None)

        yield run
    finally:
        scratch.remove()


def _renamed_pair(prepared: PreparedRun, name: str, code: Path) -> Path | None:
    """The submitter's custom pair with its imports renamed, and nothing else in it."""
    given = prepared.resources.custom.pair
    if given is None:
        return None
    path = code / "pair.py"
    text = given.read_text("utf-8")
    path.write_text(renamed_text(text, prepared.plan.key.workload, name), "utf-8")
    return path


def _one(
    prepared: PreparedRun, variant: Variant, scratch: Path, renamed: tuple[Path, Path | None] | None
) -> int:
    resources = _with_code(prepared.resources, renamed)
    command, workers = resources.command(0, scratch), resources.workers
    if renamed is not None and not isinstance(workers, ContainerWorkers):
        command = _searching(command, renamed[0])
    job = resources.job(prepared.plan, 0, variant.seed, scratch) | {"tail_ns": 0}
    job["key"] = {**job["key"], **_key_of(variant)}
    if variant.key.data == "synthetic":
        job |= {"data_dir": "", "loader": "native"}
    debug = scratch.with_name(scratch.name + ".log")
    try:
        with WorkerProcess(command, debug, lambda: workers.ended(0), lambda: workers.remove(0)) as worker:
            worker.configure(job)
            worker.expect("hello", _SETUP_S)
            workers.attest(0, worker.pid)
            worker.expect("window_open", _SETUP_S + _STEPS_S)
            worker.command("go")
            closed, _ = worker.expect("window_close", _STEPS_S)
            worker.command("tail")
            worker.expect("steps", _SETUP_S)
            end, _ = worker.expect("repeat_end", _SETUP_S)
            worker.expect("done", _SETUP_S)
    except WorkerFailure as failure:
        raise EnvironmentProblem(
            f"{variant.title}: the worker failed ({failure.code} in phase {failure.phase}): {failure.message}"
        ) from failure
    window = int(closed["close_ns"]) - int(closed["open_ns"])
    busy = end["cpu_time_ns"] if prepared.plan.device == "cpu" else None
    return window if busy is None else int(busy)


def _key_of(variant: Variant) -> Mapping[str, Any]:
    key = variant.key
    return {"workload": variant.name, "batch": key.batch, "data": key.data}


def _with_code(resources: Resources, renamed: tuple[Path, Path | None] | None) -> Resources:
    """``resources`` whose workers have the renamed code and pair; in a container they are mounted."""
    if renamed is None:
        return resources
    code, pair = renamed
    workers = resources.workers
    if isinstance(workers, ContainerWorkers):
        return replace(resources, workers=replace(workers, code=code, pair=pair))
    return replace(resources, workers=replace(workers, pair=pair))  # type: ignore[type-var]


def _searching(command: WorkerCommand, code: Path) -> WorkerCommand:
    return replace(command, environment={**command.environment, "PYTHONPATH": str(code)})
