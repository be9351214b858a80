"""The language model's specification against the published sizes and schedule."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from suite import rules
from suite.contract import MEASURED_STEPS, STEPS, Key, Specification
from suite.workloads.lstm_ptb import spec

MEDIUM = Key(
    "lstm_ptb", "pytorch", "train", "offline", "fp32", 20, 1, "reference", "synthetic", "warm", "medium"
)


def test_module_satisfies_specification() -> None:
    module: Specification = spec  # mypy holds the module to the protocol
    assert module.NAME == "lstm_ptb"


@pytest.mark.parametrize(
    ("variant", "parameters", "macs", "flop"),
    [
        ("small", 4_651_600, 2.64e6, 15.8e6),
        ("medium", 19_775_200, 13.26e6, 79.6e6),
        ("large", 66_022_000, 51.0e6, 306e6),
    ],
)
def test_published_sizes(variant: str, parameters: int, macs: float, flop: float) -> None:
    dims = spec.dimensions("reference", variant)
    found = spec.parameters(dims)
    assert sum(parameter.size for parameter in found) == parameters
    assert len({parameter.name for parameter in found}) == len(found)
    second_biases = dims.layers * 4 * dims.hidden
    assert parameters + second_biases == spec.PUBLISHED_PARAMETERS[variant]
    assert spec.forward_macs(dims) == pytest.approx(macs, rel=2e-3)
    key = replace(MEDIUM, variant=variant)
    tokens = sum(spec.units(key, 0)[-MEASURED_STEPS:])
    assert spec.window_flop(key) / tokens == pytest.approx(flop, rel=3e-3)
    assert spec.window_flop(replace(key, phase="infer")) * 3 == spec.window_flop(key)


def test_units_are_predicted_tokens() -> None:
    assert spec.units(MEDIUM, 1) == (700,) * STEPS
    assert spec.units(replace(MEDIUM, variant="small"), 2) == (400,) * STEPS
    assert spec.units(replace(MEDIUM, devices=2, batch=1), 3) == (70,) * STEPS


def test_window_bytes_exclude_embedding() -> None:
    rest = 19_775_200 - 10_000 * 650
    assert spec.window_bytes(MEDIUM) == rest * 16 * MEASURED_STEPS
    assert spec.window_bytes(replace(MEDIUM, precision="bf16")) == rest * 12 * MEASURED_STEPS
    assert spec.window_bytes(replace(MEDIUM, precision="fp16", phase="infer")) == rest * 2 * MEASURED_STEPS


@pytest.mark.parametrize(
    ("variant", "first_lower_epoch", "factor", "epoch_steps"),
    [("small", 5, 0.5, 2323), ("medium", 7, 0.8, 1327), ("large", 15, 1 / 1.15, 1327)],
)
def test_rate_decays_by_epoch(variant: str, first_lower_epoch: int, factor: float, epoch_steps: int) -> None:
    hyper = spec.hyperparameters("reference", variant)
    change = (first_lower_epoch - 1) * epoch_steps  # epochs are counted from 1 in the publications
    assert [spec.recipe_rate(hyper, step, epoch_steps) for step in (0, change - 1)] == [1.0, 1.0]
    later = [spec.recipe_rate(hyper, change + k * epoch_steps, epoch_steps) for k in (0, 1, 2)]
    assert later == pytest.approx([factor, factor**2, factor**3])
    # with fewer steps per epoch, as with a larger batch, the rate changes at the same epochs
    assert spec.recipe_rate(hyper, (first_lower_epoch - 1) * 10, 10) == pytest.approx(factor)
    dropped = spec.recipe_rate({**hyper, "rate_drops": "2:0.5"}, 2, epoch_steps)
    assert dropped == 0.5


def test_unknown_variants_are_refused() -> None:
    with pytest.raises(ValueError, match="found 'medium' at scale 'mini'"):
        spec.dimensions("mini", "medium")


@pytest.mark.parametrize(("version", "scale"), [(rules.LATEST, "reference"), ("practice", "mini")])
def test_rules_match_specification(version: str, scale: str) -> None:
    held = rules.load(version).workload("lstm_ptb")
    assert held["variants"] == list(spec.VARIANTS[scale])
    assert held["batches"] == list(spec.BATCHES[scale])
    assert set(held["quality"]) == set(spec.VARIANTS[scale])
    low, high = map(float, held["first_loss"])
    for variant in spec.VARIANTS[scale]:
        dims = spec.dimensions(scale, variant)
        assert low < dims.steps * math.log(dims.vocabulary) < high
        assert held["quality"][variant]["better"] == "lower"
