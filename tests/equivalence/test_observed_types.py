"""In bf16 every pair shows bf16 activations, fp32 masters and fp32 gradients in a step that it runs."""

from __future__ import annotations

import json

import pytest

from suite import workloads
from suite.contract.traits import traits_of
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import run

BF16 = [name for name in FRAMEWORKS if "bf16" in traits_of(name).precisions["cpu"]]
TRAIN = {"weights": "float32", "activations": "bfloat16", "gradients": "float32"}
INFER = {"weights": "bfloat16", "activations": "bfloat16"}


def quick() -> list[str]:
    """The workloads, with one image classifier for all: their pair is the same."""
    spared = {name for name in workloads.names() if workloads.specification(name).FAMILY}
    return sorted(set(workloads.names()) - spared | {"alexnet"})


@pytest.mark.parametrize("framework", BF16)
def test_step_in_bf16_reports_bf16(framework: str) -> None:
    names = quick()
    assert len(names) == 6
    result = run(framework, "tests.equivalence.observed_types", framework, "bf16", *names)
    assert result.returncode == 0, result.stderr[-4000:]
    found = {(row["workload"], row["phase"]): row for row in map(json.loads, result.stdout.splitlines())}
    assert set(found) == {(name, phase) for name in names for phase in ("train", "infer")}
    for (name, phase), row in found.items():
        assert row["dtypes"] == (TRAIN if phase == "train" else INFER), (name, phase)
        assert row["compute"] == "bfloat16"
