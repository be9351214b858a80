"""The plain script for several devices: two ranks on a CPU compute the units of both."""

from __future__ import annotations

import json

import pytest

from tests.equivalence.interpreters import run


def test_two_plain_ranks_train_the_global_batch() -> None:
    rates = {}
    for devices in ("1", "2"):
        options = ("--workload", "gnmt", "--scale", "mini", "--batch", "4", "--precision", "fp32")
        result = run(
            "pytorch", "peers.ddp", *options, "--device", "cpu", "--devices", devices, "--steps", "2"
        )
        assert result.returncode == 0, result.stderr[-4000:]
        found = json.loads(result.stdout.splitlines()[-1])
        assert found["devices"] == int(devices)
        rates[devices] = found["units_per_s"] * found["window_s"]
    assert rates["2"] == pytest.approx(2 * rates["1"], rel=0.5)  # other sentences, of the same lengths' plan
