"""Checks that every pair must pass, custom pairs too. Run in the framework's interpreter.

``python -m tests.equivalence.contract_checks CASE FRAMEWORK [FILE]`` with FILE a custom pair (default: the
suite's pair). Prints one line per check and exits with the number of failed checks.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suite import contract, workloads
from suite.common import weights
from suite.common.image_reader import DeviceImages
from suite.common.stream import digest_arrays
from suite.common.support import UnsupportedJob
from suite.contract import Parameter
from tests.equivalence.case import Case, limit_optimisation, load
from tests.equivalence.shortened import shorten


@dataclass(frozen=True)
class Subject:
    """The pair under test: makes fresh pairs of one case in one framework."""

    case: Case
    framework: str
    pair_file: str = ""
    reuse: bool = True  # False once a pair has failed check_reset_starts_again
    _kept: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def pair(self, phase: str = "train") -> Any:
        """A fresh pair in fp32."""
        return self.pair_and_framework(phase)[0]

    def kept(self, phase: str = "train") -> tuple[Any, Any]:
        """A pair and its framework, the same in every check: a fresh pair would be compiled again."""
        if not self.reuse:
            return self.pair_and_framework(phase)
        if phase not in self._kept:
            self._kept[phase] = self.pair_and_framework(phase)
        return self._kept[phase]

    def reset(self, phase: str = "train") -> tuple[Any, Any]:
        """The kept pair after ``reset()``, and its framework."""
        pair, framework = self.kept(phase)
        pair.collect()
        pair.reset()
        return pair, framework

    def reset_pair(self, phase: str = "train") -> Any:
        """The kept pair after ``reset()``."""
        return self.reset(phase)[0]

    def pair_and_framework(self, phase: str = "train", *, staged: bool = False) -> tuple[Any, Any]:
        """A fresh pair and its framework; ``staged`` uses the workload's synthetic data."""
        job = replace(self.case.job(self.framework, "fp32", phase), pair_file=self.pair_file)
        framework = workloads.framework_module(job).Framework(job)
        data = workloads.open_data(job) if staged else self.case.data(job)
        return workloads.pair_module(job).Pair(job, framework, data), framework

    def specified(self) -> tuple[Parameter, ...]:
        """The parameters of the specification."""
        spec = workloads.specification(self.case.workload)
        return spec.parameters(spec.dimensions("mini", self.case.variant))


def state_of(pair: Any) -> str:
    """A digest of a pair's state: its parameters and, through ``evaluated``, its running statistics."""
    seen = {"evaluated": pair.evaluated(0)} if hasattr(pair, "evaluated") else {}
    return digest_arrays(pair.parameters() | seen)


def losses_of(pair: Any, steps: int) -> list[float]:
    """The losses of the first ``steps`` steps."""
    for step in range(steps):
        pair.step(step)
    return [float(loss) for loss in pair.collect()]


def check_reset_starts_again(subject: Subject) -> None:
    pair, _ = subject.kept()  # fresh: this check is the first
    initial = state_of(pair)
    first = losses_of(pair, 4)
    after = state_of(pair)
    pair.reset()
    assert state_of(pair) == initial
    assert losses_of(pair, 4) == first
    assert state_of(pair) == after


def check_parameters_are_as_specified(subject: Subject) -> None:
    specified = subject.specified()
    found = subject.reset_pair().parameters()
    assert [(p.name, p.shape) for p in specified] == [(name, array.shape) for name, array in found.items()]
    assert all(array.dtype == np.float32 for array in found.values())
    assert digest_arrays(found) == weights.digest(subject.case.workload, specified)


def members(protocol: type) -> set[str]:
    """The names that a protocol declares."""
    return {name for name in {**vars(protocol), **protocol.__annotations__} if not name.startswith("_")}


def check_all_members_exist(subject: Subject) -> None:
    for phase in ("train", "infer"):
        pair, framework = subject.pair_and_framework(phase)
        assert [name for name in sorted(members(contract.Pair)) if not hasattr(pair, name)] == []
        assert [name for name in sorted(members(contract.Framework)) if not hasattr(framework, name)] == []
        assert framework.scaling.report() is None, "nothing is scaled in fp32"
        assert pair.gradient_norms() == []


def check_gradient_norms_belong_to_steps(subject: Subject) -> None:
    pair = subject.reset_pair()
    gradients = pair.gradients(0)
    losses_of(pair, 1)
    norms = pair.gradient_norms()
    wanted = float(np.sqrt(sum(float(np.square(g.astype(np.float64)).sum()) for g in gradients.values())))
    assert len(norms) in (0, 1)
    assert all(abs(norm - wanted) <= 1e-4 * wanted for norm in norms), (norms, wanted)


def check_parameters_are_copies(subject: Subject) -> None:
    pair = subject.reset_pair()
    before = pair.parameters()
    digest = digest_arrays(before)
    losses_of(pair, 2)
    assert digest_arrays(before) == digest, "a step changed arrays that parameters() had returned"
    assert digest_arrays(pair.parameters()) != digest, "two steps changed nothing"


def check_gradients_change_nothing(subject: Subject) -> None:
    pair = subject.reset_pair()
    before = state_of(pair)
    first, second = pair.gradients(0), pair.gradients(0)
    assert [(p.name, p.shape) for p in subject.specified()] == [(n, a.shape) for n, a in first.items()]
    assert digest_arrays(first) == digest_arrays(second)
    assert all(np.isfinite(array).all() for array in first.values())
    assert state_of(pair) == before
    assert pair.collect() == []


def check_outputs_change_nothing(subject: Subject) -> None:
    pair = subject.reset_pair()
    before = state_of(pair)
    first, second = pair.outputs(0), pair.outputs(0)
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    assert (first == second).all()
    assert first.shape != pair.outputs(1).shape or (first != pair.outputs(1)).any(), "batches do not differ"
    assert state_of(pair) == before


def check_reading_does_not_disturb_training(subject: Subject) -> None:
    spec = workloads.specification(subject.case.workload)
    arrays = subject.case.evaluation(spec.dimensions("mini", subject.case.variant))
    pair = subject.reset_pair()
    found = losses_of(pair, 1)
    for step in (1, 2):
        pair.gradients(step)
        pair.outputs(step)
        pair.predict(arrays)
        pair.step(step)
    found += [float(loss) for loss in pair.collect()]
    # In any order: another check covers the order.
    wanted = losses_of(subject.reset_pair(), 3)
    assert sorted(found) == sorted(wanted), "the state that a pair carries has changed"


def check_collect_is_in_order(subject: Subject) -> None:
    together, singly = subject.reset_pair(), subject.pair()
    expected = []
    for step in range(4):
        singly.step(step)
        (loss,) = singly.collect()
        expected.append(float(loss))
    for step in range(4):
        together.step(step)
    found = together.collect()
    assert [loss.shape for loss in found] == [()] * 4
    assert [float(loss) for loss in found] == expected
    assert together.collect() == []
    assert digest_arrays(singly.parameters()) == digest_arrays(together.parameters()), "not deterministic"


def check_inference_returns_one_array_per_step(subject: Subject) -> None:
    pair = subject.reset_pair("infer")
    before = digest_arrays(pair.parameters())
    for step in (0, 0, 1):
        pair.step(step)
    first, again, other = pair.collect()
    assert digest_arrays({"output": first}) == digest_arrays({"output": again}), (
        "step 0 starts from another state"
    )
    assert digest_arrays({"output": first}) != digest_arrays({"output": other}), "outputs share memory"
    assert len(first) == subject.case.batch
    assert np.isfinite(first).all()
    assert digest_arrays(pair.parameters()) == before


def check_predictions(subject: Subject) -> None:
    spec = workloads.specification(subject.case.workload)
    arrays = subject.case.evaluation(spec.dimensions("mini", subject.case.variant))
    pair = subject.reset_pair()
    found = pair.predict(arrays)
    assert set(found) == set(subject.case.predicted)
    for name, shape in subject.case.predicted.items():
        expected = tuple(b if a == -1 else a for a, b in zip(shape, found[name].shape, strict=True))
        assert found[name].shape == expected, name
    assert digest_arrays(found) == digest_arrays(pair.predict(arrays))
    assert digest_arrays(found) == digest_arrays(subject.reset_pair("infer").predict(arrays))


def check_staged_batches_run(subject: Subject) -> None:
    for phase in ("train", "infer"):
        pair, framework = subject.pair_and_framework(phase, staged=True)
        for step in range(3):
            pair.step(step)
        framework.synchronize()
        found = pair.collect()
        assert len(found) == 3
        assert all(np.isfinite(array).all() for array in found)


def check_images_of_a_device_are_copied(subject: Subject) -> None:
    """Images that a reader has decoded on a device; here the processor, whose arrays export DLPack too."""
    _, framework = subject.kept()
    pixels = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    expected = pixels.copy()
    images = DeviceImages(pixels, pixels.shape, pixels.copy, pixels[:, :1].copy())
    tensor = framework.tensor(images)
    framework.synchronize()
    pixels[:] = 0
    found = framework.array(tensor)
    assert found.dtype == np.uint8
    assert (found == expected).all(), "the tensor shares the reader's memory"


def check_timestamps_increase(subject: Subject) -> None:
    pair, framework = subject.reset()
    framework.prepare_timestamps(4)
    framework.synchronize()
    framework.record_timestamp(0)
    for step in range(3):
        pair.step(step)
        framework.record_timestamp(step + 1)
    framework.synchronize()
    timestamps = framework.read_timestamps(4)
    assert len(timestamps) == 3
    assert all(isinstance(timestamp, int) for timestamp in timestamps)
    assert 0 < timestamps[0] < timestamps[1] < timestamps[2]
    assert framework.timestamp_kind in ("device", "host_completion", "host_dispatch")


def check_descriptions(subject: Subject) -> None:
    pair, framework = subject.reset()
    losses_of(pair, 1)
    assert json.loads(json.dumps(framework.describe())) == framework.describe()
    assert {"version", "device", "threads", "tf32"} <= set(framework.describe())
    assert framework.memory() == {"peak_device_bytes": None}, "a CPU has no device memory"
    types = {"weights": "float32", "activations": "float32", "gradients": "float32"}
    assert framework.dtypes() == types


def check_unsupported_precisions_are_refused(subject: Subject) -> None:
    for precision in ("tf32", "fp16"):
        job = subject.case.job(subject.framework, precision)
        refused = ""
        try:
            workloads.framework_module(job).Framework(job)
        except UnsupportedJob as error:
            refused = str(error)
        assert precision in refused, f"{precision} on a CPU was not refused"


CHECKS = {name: check for name, check in list(globals().items()) if name.startswith("check_")}


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.equivalence.contract_checks", description=__doc__)
    parser.add_argument("case")
    parser.add_argument("framework")
    parser.add_argument("file", nargs="?", default="")
    asked = parser.parse_args(arguments)
    limit_optimisation(asked.framework)
    case = load(asked.case)
    # A custom pair may have its own network.
    if workloads.specification(case.workload).FAMILY and not asked.file:
        shorten(case.workload)
    subject = Subject(case, asked.framework, asked.file)
    failed = 0
    for title, check in CHECKS.items():
        try:
            check(subject)
        except Exception:  # noqa: BLE001 - every check is run and reported
            failed += 1
            subject = replace(subject, reuse=subject.reuse and check is not check_reset_starts_again)
            print(f"FAILED {title}\n{traceback.format_exc()}")
        else:
            print(f"passed {title}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
