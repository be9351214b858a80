"""Steps that compute the gradient without an update: the same in every framework, and as in training."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import run

CASES = ("alexnet", "faster_rcnn", "gnmt", "lstm_ptb", "ncf", "resnet50_cifar10")


def steps_of(framework: str) -> Any:
    done = run(framework, "tests.equivalence.forward_backward", framework, *CASES)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gradient_without_update(framework: str, pytorch: Any) -> None:
    found = pytorch if framework == "pytorch" else steps_of(framework)
    for case, one in found.items():
        assert one["changed"] == [], case
        assert one["again"] == pytest.approx(one["losses"], rel=1e-12), case
        assert one["training"] == pytest.approx(one["losses"][0], rel=1e-12), case
        assert one["norm of gradients"] == pytest.approx(one["norms"][0], rel=1e-9), case
        for name in ("losses", "norms"):
            assert len(set(one[name])) == len(one[name]), case  # each batch has its own
            assert one[name] == pytest.approx(pytorch[case][name], rel=1e-8), case


@pytest.fixture(scope="module")
def pytorch() -> Any:
    return steps_of("pytorch")
