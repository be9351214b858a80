"""Convolutions that are fused with what follows them leave the outputs of networks as they are."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run


def test_fused_convolutions_change_no_output() -> None:
    done = run("pytorch", "tests.equivalence.fused_convolutions")
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    for name, network in found.items():
        assert network["apart"] < 1e-13, name
        assert network["wrong"] == [], name
    blocks = found["resnet50"]["calls"]["add"]
    assert found["resnet50"]["calls"]["relu"] == 2 * blocks > 0
    assert found["vgg16"]["calls"]["relu"] > 5
    assert found["googlenet"]["calls"]["relu"] > 20
