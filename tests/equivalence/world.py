"""N ranks compute what one process computes over the same N shards of the global batch: float64, on CPUs.

``python -m tests.equivalence.world FRAMEWORK CASE N [MUTANT...]`` runs ten steps of the case on N ranks, or
with each mutant, and prints one line of JSON as the last one: by run, the largest difference of each kind of
array, relative to the largest magnitude of the tensor (at least to ``NEGLIGIBLE`` times the largest weight),
and whether the ranks' weights are equal bit for bit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from suite import workloads
from suite.contract.traits import traits_of
from suite.worker import parent
from tests.equivalence.case import LOSSES, Case, load
from tests.equivalence.compare import NEGLIGIBLE
from tests.equivalence.shortened import shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from suite.contract import Data, Job

    Arrays = dict[str, NDArray[Any]]

# Entered in the process of one rank; it yields the job whose data that rank reads.
Change = Callable[["Job"], "contextlib.AbstractContextManager[Job]"]

# The frameworks that exchange gradients, with the ranks of their tests.
FRAMEWORKS = {"pytorch": 3, "tensorflow": 3, "mxnet": 2, "jax": 3}
# MXNet's server adds up in float32, and so does its reference. The last bit of a gradient in float64 may
# differ between processes and change that rounding; untrained networks magnify it to 4e-5.
BOUNDS = {"pytorch": 1e-10, "tensorflow": 1e-10, "mxnet": 1e-4, "jax": 1e-10}
TIMEOUT_S = 300
HONEST = "honest"
UNCLIPPED = ",unclipped"  # behind the name of a case: its gradients are not clipped


class Rows:
    """A rank's rows of the case's batch at the size of the global batch."""

    def __init__(self, case: Case, job: Job) -> None:
        whole = replace(job.key, batch=job.global_batch)
        self._data, self._rows = case.data(replace(job, key=whole, rank=0, world_size=1)), job.rows
        self.steps_per_epoch = self._data.steps_per_epoch

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def batch(self, step: int) -> Arrays:
        """The rank's rows of ``step``."""
        return {name: array[self._rows] for name, array in self._data.batch(step).items()}


def case_of(name: str) -> Case:
    """The case ``name``, which may end with :data:`UNCLIPPED`."""
    case = load(name.removesuffix(UNCLIPPED))
    return replace(case, hyper={**dict(case.hyper), "clip": "0"}) if name.endswith(UNCLIPPED) else case


def shard(case: Case, job: Job) -> Data:
    """The data of the rank of ``job``; word2vec cuts its arrays itself, because its windows overlap."""
    return case.data(job) if case.workload == "word2vec" else Rows(case, job)  # type: ignore[return-value]


def job_of(framework: str, case: Case, size: int, rank: int, folder: Path) -> Job:
    """The job of ``rank`` of ``size``."""
    job, traits = case.job(framework, "fp64"), traits_of(framework)
    return replace(
        job,
        key=replace(job.key, devices=size, strategy=traits.strategies[0]),
        collective=traits.collectives["cpu"][0],
        rank=rank,
        world_size=size,
        scratch_dir=str(folder),
    )


def build(job: Job, data: Data) -> Any:
    """A pair with its framework."""
    framework = workloads.framework_module(job).Framework(job)
    return workloads.pair_module(job).Pair(job, framework, data)


def hooks_of(framework: str) -> Any:
    """What this module needs to know of ``framework``."""
    return importlib.import_module(f"tests.equivalence.worlds.{framework}")


def state_of(pair: Any) -> Arrays:
    """Weights, and what a rank keeps for itself: running statistics or a recurrent state."""
    kept = {f"state/{at}": pair.framework.array(tensor) for at, tensor in enumerate(pair.state)}
    return {f"weight/{name}": array for name, array in pair.parameters().items()} | kept


def run_rank(case: Case, job: Job, change: Change, file: Path) -> None:
    """Ten steps of one rank; writes its state, its shares of the losses, and the norms of the gradients."""
    with change(job) as read:
        pair = build(job, shard(case, read))
        for step in range(LOSSES):
            pair.step(step)
    losses = np.array([float(loss) for loss in pair.collect()])
    np.savez(file, losses=losses, norms=np.array(pair.gradient_norms()), **state_of(pair))  # type: ignore[arg-type]
    hooks_of(job.key.framework).leave()


def run_one(framework: str, case: Case, size: int, folder: Path) -> None:
    """Ten steps in one process, which has a pair for each shard; writes what each rank should have.

    The mean over the shards is computed here: these pairs exchange nothing.
    """
    jobs = [job_of(framework, case, size, rank, folder) for rank in range(size)]
    hooks = hooks_of(framework)
    pairs = [build(replace(job, rank=0, world_size=1), shard(case, job)) for job in jobs]
    losses = []
    for step in range(LOSSES):
        for pair in pairs:
            pair.begin_step(step)
        parts = [pair.gradients(step) for pair in pairs]
        if case.workload == "word2vec":
            losses.append(_mean_loss(pairs, step))
            _descend(pairs, parts, step, hooks)
            continue
        for pair in pairs:
            mean = {name: hooks.summed([part[name] for part in parts]) / size for name in pair.trained}
            with hooks.exchanged(pair, {name: np.asarray(array) for name, array in mean.items()}):
                pair.step(step)
        losses.append(sum(float(pair.collect()[0]) for pair in pairs) / size)
    for rank, pair in enumerate(pairs):
        norms = np.array(pair.gradient_norms())
        file = folder / f"truth-{rank}.npz"
        np.savez(file, losses=np.array(losses), norms=norms, **state_of(pair))  # type: ignore[arg-type]


def _mean_loss(pairs: Sequence[Any], step: int) -> float:
    """The mean loss of a pair of words."""
    counts = [pair.data.batch(step)["contexts"].sum() for pair in pairs]
    return float(sum(pair.outputs(step).sum() for pair in pairs) / sum(counts))


def _descend(pairs: Sequence[Any], parts: Sequence[Arrays], step: int, hooks: Any) -> None:
    """One update of word2vec by dense gradients."""
    batches = [pair.data.batch(step) for pair in pairs]
    for pair in pairs:
        rate = pair.spec.learning_rate(pair.job, step, pair.data.steps_per_epoch)
        for name, kind in (("input", "word"), ("output", "target")):
            share = np.zeros(len(parts[0][name]))
            for batch in batches:
                share[batch[f"{kind}s"]] = batch[f"{kind}_share"]
            change = hooks.summed([rate * share[:, None] * part[name] for part in parts])
            hooks.subtract(pair, name, change)


def largest(array: NDArray[Any]) -> float:
    """The largest magnitude; 0 where there is no element."""
    return float(np.abs(array).max(initial=0.0))


def difference(found: NDArray[Any], truth: NDArray[Any], least: float = 0.0) -> float:
    """The largest difference relative to the largest magnitude of ``truth``, at least ``least``."""
    return largest(found - truth) / (max(largest(truth), least) or 1.0)


def compare(folder: Path, run: str, size: int) -> dict[str, Any]:
    """The largest difference of each kind of array, and whether all ranks have the same weights."""
    found, truth = (
        [_arrays(folder / f"{name}-{rank}.npz") for rank in range(size)] for name in (run, "truth")
    )
    shares = np.sum([rank["losses"] for rank in found], axis=0)
    most = {"losses": difference(shares, truth[0]["losses"])}
    for mine, wanted in zip(found, truth, strict=True):
        least = NEGLIGIBLE * max(largest(wanted[name]) for name in wanted if name.startswith("weight/"))
        for name in wanted.keys() - {"losses"}:
            kind = name.partition("/")[0]
            most[kind] = max(most.get(kind, 0.0), difference(mine[name], wanted[name], least))
    weights = [name for name in found[0] if name.startswith("weight/")]
    equal = all((rank[name] == found[0][name]).all() for rank in found for name in weights)
    return {"differences": most, "equal": bool(equal)}


def _arrays(file: Path) -> Arrays:
    with np.load(file) as arrays:
        return dict(arrays)


@contextlib.contextmanager
def unchanged(job: Job) -> Iterator[Job]:
    """No mutant."""
    yield job


def in_processes(*calls: tuple[Callable[..., None], tuple[Any, ...]]) -> None:
    """Make each call in a process of its own, all at once; RuntimeError if one fails.

    The processes are forks: they need not import the framework again, which takes longer than the steps.
    """
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function, args=arguments) for function, arguments in calls]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(TIMEOUT_S)
        ends = [process.exitcode for process in processes]
        if any(ends):
            raise RuntimeError(f"ranks: expected exit code 0, found {ends}")
    finally:
        for process in processes:
            process.kill()


def main(arguments: list[str]) -> None:
    """See the module."""
    framework, name, count, *mutants = arguments
    case, size = case_of(name), int(count)
    case.compile_quickly(framework)
    if case.shortened:
        shorten(case.workload, blocks=1)  # the exchange does not depend on the depth
    workloads.pair_module(case.job(framework, "fp64"))  # imported before the forks
    workloads.framework_module(case.job(framework, "fp64"))
    changes: dict[str, Change] = {HONEST: unchanged}
    if mutants:
        known = importlib.import_module(f"tests.equivalence.mutants.world_{framework}").MUTANTS
        changes = {mutant: known[mutant] for mutant in mutants}
    found = {}
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        in_processes((run_one, (framework, case, size, folder)))
        for run, change in changes.items():
            scratch = folder / run
            scratch.mkdir()
            jobs = [job_of(framework, case, size, rank, scratch) for rank in range(size)]
            files = [folder / f"{run}-{rank}.npz" for rank in range(size)]
            calls = [(run_rank, (case, job, change, file)) for job, file in zip(jobs, files, strict=True)]
            with parent.helpers(framework, size) as helping, mock.patch.dict(os.environ, helping.variables):
                in_processes(*calls)
            found[run] = compare(folder, run, size)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
