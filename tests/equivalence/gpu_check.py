"""A framework's fast path on a GPU against its fast path on the CPU, without pytest.

``python -m tests.equivalence.gpu_check CASE FRAMEWORK [PRECISION...]``, default all. fp64 and fp32 must meet
the bounds of the equivalence test and 1e-3 in the ten losses; tf32, bf16 and fp16 must meet 2e-2 in the
losses. A reset must restart the pair, and the outputs of more steps than a window has must arrive in order.
The exit code is the number of problems. Each device has processes of its own: TensorFlow cannot change it.

Prints a JSON line for each precision. Those in ``docs/equivalence-gpu.json``, a list, are the table of the
GPU in ``docs/equivalence.md``. A row there may have a ``note``: what was not as the suite runs, or why the
difference is above its bound.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from suite import workloads
from tests.equivalence import compare
from tests.equivalence.case import LOSSES, Case, load
from tests.equivalence.runner import build, measure

DEVICE = "cuda:0"
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16")
REDUCED = 2e-2  # bound of the losses in tf32, bf16 and fp16
MANY = 250


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of ``function`` in a fresh process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure_on(device: str, name: str, framework: str, precision: str) -> dict[str, Any]:
    """All compared arrays of the case ``name`` on ``device``."""
    take_kernels(framework)
    return measure(load(name), framework, precision, device=device)


def take_kernels(framework: str) -> None:
    """Lets the small inputs of mini scale go through the kernels of large ones."""
    if framework == "pytorch":
        layers: Any = import_module("suite.frameworks.pytorch.layers")
        layers.NORMALISED_BY_KERNELS = 0


def facts_of(name: str, framework: str) -> dict[str, Any]:
    """The names of the row: the case, the framework with its version, and the GPU."""
    job = replace(load(name).job(framework, "fp32"), device=DEVICE)
    facts = workloads.framework_module(job).Framework(job).describe()
    names = {"workload": name, "framework": framework}
    return names | {"version": facts["version"], "device": facts["device_name"]}


def problems(facts: dict[str, Any], precision: str) -> Iterator[str]:
    """The problems on the GPU in ``precision`` of the case and framework of ``facts``."""
    name, framework = facts["workload"], facts["framework"]
    exact = precision in ("fp64", "fp32")
    truth = apart(measure_on, "cpu", name, framework, precision if exact else "fp32")
    try:
        on_gpu = apart(measure_on, DEVICE, name, framework, precision)
    except RuntimeError as error:  # such as WrongCode: a framework's compiler made wrong code
        print(json.dumps(facts | {"precision": precision, "refused": type(error).__name__}), flush=True)
        yield str(error)
        return
    difference = compare.in_maximum(on_gpu["losses"], truth["losses"])
    row = facts | {"precision": precision, "losses": difference}
    if not difference <= (1e-3 if exact else REDUCED):
        yield f"losses differ by {difference}"
    if exact:
        found = compare.differences(on_gpu, truth, precision)
        row["tensor"], row["largest"] = max(found.items(), key=lambda item: item[1])
        for array, value in compare.excesses(found, precision).items():
            yield f"{array}: {value}"
    print(json.dumps(row), flush=True)


def reset_problems(case: Case, framework: str) -> Iterator[str]:
    """Checks that a captured pair restarts after a reset; a GPU's sums may differ in their last bits."""
    pair = build(case, replace(case.job(framework, "fp32"), device=DEVICE))
    runs = []
    for _ in range(2):
        for step in range(LOSSES):
            pair.step(step)
        runs.append([float(loss) for loss in pair.collect()])
        pair.reset()
    print(f"losses {runs[0]}")
    if any(abs(a - b) > 1e-4 * abs(a) for a, b in zip(*runs, strict=True)):
        yield f"reset: expected the losses {runs[0]}, found {runs[1]}"


def order_problems(case: Case, framework: str) -> Iterator[str]:
    """Checks that the outputs of many steps are returned in order."""
    pair = build(case, replace(case.job(framework, "fp32", "infer"), device=DEVICE))
    expected = []
    for step in range(3):
        pair.step(step)
        expected += [array.copy() for array in pair.collect()]
    for step in range(MANY):
        pair.step(step % 3)
    found = pair.collect()
    if len(found) != MANY:
        yield f"collect: expected {MANY} arrays, found {len(found)}"
    for step, array in enumerate(found):
        if compare.in_maximum(array, expected[step % 3]) > 1e-5:
            yield f"collect: the array of step {step} is not that of its batch"
            return


def behaviour_problems(name: str, framework: str) -> list[str]:
    """The problems with resets and with the order of outputs."""
    take_kernels(framework)
    case = load(name)
    return [*reset_problems(case, framework), *order_problems(case, framework)]


def main(arguments: list[str]) -> int:
    """See the module."""
    name, framework, *precisions = arguments
    facts = apart(facts_of, name, framework)
    found = [f"{p}: {problem}" for p in precisions or PRECISIONS for problem in problems(facts, p)]
    found += apart(behaviour_problems, name, framework)
    print("\n".join(found) or "all as on the CPU")
    return min(len(found), 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
