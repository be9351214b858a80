"""word2vec's specification against the numbers of its publications, and its initial weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from suite.common import weights
from suite.contract import Job, Key
from suite.workloads.word2vec import spec

KEY = Key(
    *("word2vec", "pytorch", "train", "offline", "fp32", 4000, 1),
    *("reference", "synthetic", "warm", "d200"),
)


def test_published_sizes() -> None:
    dims = spec.dimensions("reference", "d200")
    assert (dims.width, dims.window, dims.negatives) == (200, 5, 25)
    assert sum(parameter.size for parameter in spec.parameters(dims)) == 2 * 71_290 * 200 == 28_516_000
    light = spec.dimensions("reference", "d100")
    assert (light.width, light.window, light.negatives) == (100, 5, 5)


def test_mini_model_has_same_tensors_with_smaller_tables() -> None:
    for variant in spec.VARIANTS["mini"]:
        mini, full = (spec.dimensions(scale, variant) for scale in ("mini", "reference"))
        assert replace(mini, vocabulary=full.vocabulary) == full


def test_unknown_variant_is_named() -> None:
    with pytest.raises(ValueError, match="found scale 'mini', variant 'd300'"):
        spec.dimensions("mini", "d300")


def test_units_are_words_before_sub_sampling_for_any_seed() -> None:
    assert spec.units(KEY, 1) == spec.units(KEY, 2) == (4000,) * 110
    assert spec.units(replace(KEY, devices=4), 1) == (16_000,) * 110


def test_cost_of_a_pair_and_of_a_query() -> None:
    assert spec.expected_pairs(KEY) == 17_952  # 4.49 a word
    assert spec.window_flop(KEY) == 31_200 * 17_952 * 100
    infer = replace(KEY, phase="infer", batch=10)
    assert spec.window_flop(infer) == 2 * 71_290 * 200 * 10 * 100
    assert spec.window_bytes(infer) == 4 * 71_290 * 200 + 100 * 10 * 84
    assert spec.window_bytes(replace(infer, precision="bf16")) < spec.window_bytes(infer)
    assert spec.window_bytes(KEY) == 100 * 27 * 11_968


def test_rate_falls_with_words_read() -> None:
    hyper = spec.hyperparameters("reference", "d200")
    job = Job(KEY, "throughput", 1, 0, hyper, "cpu", 1, True, 0, 0, "", "")
    assert spec.learning_rate(job, 0, 1) == 0.025
    half = int(float(hyper["decay_words"])) // 4000 // 2
    assert spec.learning_rate(job, half, 1) == pytest.approx(0.0125, rel=1e-4)
    assert spec.learning_rate(job, 10**9, 1) == pytest.approx(0.025e-4)
    small = replace(job, key=replace(KEY, batch=1000))
    assert spec.learning_rate(small, 4 * half, 1) == pytest.approx(spec.learning_rate(job, half, 1))
    dropped = hyper | {"rate_drops": "2:0.5", "decay_words": "1e18"}
    assert [spec.recipe_rate(dropped, step) for step in (1, 2)] == pytest.approx([0.025, 0.0125])


def test_capacity_exceeds_expected_kept_words() -> None:
    assert [spec.capacity(batch) for batch in (1, 8, 1000, 4000)] == [1, 7, 875, 3500]


def test_initial_weights_follow_the_specification() -> None:
    dims = spec.dimensions("mini", "d100")
    found = dict(weights.initial("word2vec", spec.parameters(dims)))
    assert [array.shape for array in found.values()] == [(1300, 100)] * 2
    assert not found["output"].any()
    assert 0.00499 < float(np.abs(found["input"]).max()) <= 0.005
    assert weights.digest("word2vec", spec.parameters(dims)) == DIGEST


DIGEST = "6ede79bedf93a3f08be571f01dab2c9bf73df54d37374f05c6a7dc867b1cdde3"
