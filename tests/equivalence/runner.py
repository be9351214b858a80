"""Runs one case in one framework's interpreter and writes the results.

``python -m tests.equivalence.runner CASE FRAMEWORK FOLDER RUN...`` with RUN a precision (``fp64``, ``fp32``),
``<precision>=FILE`` for a custom pair, ``<precision>,whole`` for a case that is otherwise shortened or, in
PyTorch, ``mutants=TRUTH``. Writes ``FOLDER/<precision>.npz``, or ``FOLDER/mutants.json``: for each mutant the
first array beyond its bound around those of the file TRUTH, and its difference; null where there is none.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from suite import workloads
from tests.equivalence.case import LOSSES, UPDATES, Case, load
from tests.equivalence.compare import first_excess
from tests.equivalence.shortened import WHOLE, shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from suite.contract import Job


def build(case: Case, job: Job) -> Any:
    """A pair with its framework and the case's data."""
    framework = workloads.framework_module(job).Framework(job)
    return workloads.pair_module(job).Pair(job, framework, case.data(job))


def measured(
    case: Case,
    framework: str,
    precision: str,
    device: str = "cpu",
    pair_file: str = "",
    compared_only: bool = False,
    **hyper: str,
) -> Iterator[tuple[str, NDArray[Any]]]:
    """All compared arrays by name: outputs, gradients, updates after three steps, ten losses, inference.

    A pair with running statistics has a method ``evaluated``, whose result after the three steps is compared
    too. Arrays are yielded one by one, because those of a large model fill the memory. ``compared_only``
    leaves out arrays without a bound in ``precision``: in fp32 the gradients, the later losses and mostly the
    updates.
    """

    def fresh(phase: str) -> Any:
        job = case.job(framework, precision, phase, **hyper)
        return build(case, replace(job, device=device, pair_file=pair_file))

    short = compared_only and precision != "fp64"
    pair = fresh("train")
    yield "outputs", pair.outputs(0)
    if short and case.update_bound is None:
        pair.step(0)
    else:
        if not short:
            gradients = pair.gradients(0)
            for name in list(gradients):
                yield f"gradient/{name}", gradients.pop(name)
        initial = pair.parameters()
        for step in range(UPDATES):
            pair.step(step)
        after = pair.parameters()
        for name in list(after):
            yield f"update/{name}", after.pop(name) - initial.pop(name)
        if not short:
            if hasattr(pair, "evaluated"):
                yield "evaluated", pair.evaluated(0)
            for step in range(UPDATES, LOSSES):
                pair.step(step)
    yield "losses", np.array([float(loss) for loss in pair.collect()])
    del pair
    gc.collect()  # before the next pair needs as much memory
    inference = fresh("infer")
    for step in range(2):  # two, because a pair may carry a state from step to step
        inference.step(step)
    found = np.stack(inference.collect())
    for name, column in case.columns.items():
        yield f"inference/{name}".rstrip("/"), found[column]


def measure(case: Case, framework: str, precision: str, **options: Any) -> dict[str, NDArray[Any]]:
    """All of :func:`measured` at once."""
    return dict(measured(case, framework, precision, **options))


def mutants(case: str) -> dict[str, Any]:
    """The mutants of a case by name; imports PyTorch."""
    found: dict[str, Any] = importlib.import_module(f"tests.equivalence.mutants.{case}").MUTANTS
    return found


def main(arguments: list[str]) -> None:
    """See the module."""
    name, framework, folder, *wanted = arguments
    case = load(name)
    runs = [run.removesuffix(WHOLE) for run in wanted]
    if case.shortened and runs == wanted:
        shorten(case.workload)
    if len(runs) == 1:
        case.compile_quickly(framework, runs[0].partition("=")[0])
    for run in runs:
        kind, _, file = run.partition("=")
        if kind == "mutants":
            with np.load(file) as saved:
                truth = dict(saved)
            found = {}
            for mutant, change in mutants(name).items():
                with change() as hyper:
                    found[mutant] = first_excess(measured(case, framework, "fp64", **hyper), truth)
            Path(folder, "mutants.json").write_text(json.dumps(found))
        else:
            arrays: dict[str, Any] = measure(case, framework, kind, pair_file=file, compared_only=True)
            np.savez(Path(folder, f"{kind}.npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
