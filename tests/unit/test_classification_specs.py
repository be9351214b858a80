"""The image classifiers against the numbers of their publications."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from suite import rules
from suite.common import layers
from suite.contract import Job, Key
from suite.workloads import specification
from suite.workloads._classification.predictions import best

# Parameters, multiply-accumulates (10**9) of a forward pass and FLOP (10**9) of a training step, an image.
PUBLISHED = {
    "alexnet": (61_100_840, 0.714, 4.145),
    "vgg16": (138_357_544, 15.470, 92.65),
    "googlenet": (6_624_904, 1.498, 8.75),
    "inception_v3": (23_834_568, 5.713, 34.24),
    "resnet50": (25_557_032, 4.089, 24.30),
    "resnet152": (60_192_808, 11.514, 68.85),
    "resnet50_cifar10": (23_520_842, 1.298, 7.78),
    "inception_bn_small": (1_652_826, 0.204, 1.221),
}


def key(workload: str, **changes: object) -> Key:
    spec: Any = specification(workload)
    found = Key(
        workload,
        framework="pytorch",
        phase="train",
        scenario="offline",
        precision="fp32",
        batch=64,
        devices=1,
        scale="reference",
        data="synthetic",
        cache="warm",
        variant=spec.VARIANT,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("workload", PUBLISHED)
def test_published_sizes(workload: str) -> None:
    spec: Any = specification(workload)
    parameters, gmac, gflop = PUBLISHED[workload]
    dims = spec.dimensions("reference", spec.VARIANT)
    assert sum(parameter.size for parameter in spec.parameters(dims)) == parameters
    assert len({parameter.name for parameter in spec.parameters(dims)}) == len(spec.parameters(dims))
    network = spec.network(dims)
    assert layers.output_shape(network, dims.shape) == (dims.classes,)
    assert layers.macs(network, dims.shape) / 1e9 == pytest.approx(gmac, abs=6e-4)
    assert 2 * layers.training_macs(network, dims.shape) / 1e9 == pytest.approx(gflop, rel=1e-3)
    assert spec.window_flop(key(workload, phase="infer")) == 2 * layers.macs(network, dims.shape) * 6400


@pytest.mark.parametrize("workload", PUBLISHED)
def test_mini_network_has_same_layers_with_smaller_sizes(workload: str) -> None:
    spec: Any = specification(workload)
    kinds = [
        [(type(layer), getattr(layer, "name", "")) for layer in layers.walk(spec.network(spec.SIZES[scale]))]
        for scale in ("reference", "mini")
    ]
    assert kinds[0] == kinds[1]
    mini = spec.SIZES["mini"]
    assert layers.output_shape(spec.network(mini), mini.shape) == (mini.classes,)
    assert sum(parameter.size for parameter in spec.parameters(mini)) < 2e6


@pytest.mark.parametrize("workload", PUBLISHED)
def test_rules_match_specification(workload: str) -> None:
    spec: Any = specification(workload)
    for version, scale in ((rules.LATEST, "reference"), ("practice", "mini")):
        held = rules.load(version).workload(workload)
        assert held["batches"] == list(spec.BATCHES[scale])
        assert held["variants"] == [spec.VARIANT]
        low, high = map(float, held["first_loss"])
        assert low < np.log(spec.SIZES[scale].classes) < high


def job(workload: str, mode: str, batch: int, **hyper: str) -> Job:
    spec: Any = specification(workload)
    settings = spec.hyperparameters("reference", spec.VARIANT) | hyper
    return Job(key(workload, batch=batch), mode, 1, 0, settings, "cpu", 1, False, 0, 0, "", "")


def test_recipe_rates_match_publications() -> None:
    """ResNet-50: 0.256 for 256 images behind a warm-up of 8 epochs, then a cosine to the end of the 90th."""
    resnet: Any = specification("resnet50")
    hyper = resnet.hyperparameters("reference", "v1.5")
    epoch = 5004
    assert resnet.recipe_rate(hyper, 8 * epoch) == pytest.approx(0.256)
    assert resnet.recipe_rate(hyper, 4 * epoch) == pytest.approx(0.128, rel=1e-3)
    assert resnet.recipe_rate(hyper, 49 * epoch) == pytest.approx(0.128)
    assert resnet.recipe_rate(hyper, 90 * epoch) == pytest.approx(0, abs=1e-12)
    alexnet: Any = specification("alexnet")
    hyper = alexnet.hyperparameters("reference", "v1")
    found = [alexnet.recipe_rate(hyper, at * epoch) for at in (0, 29, 30, 59, 60, 89)]
    assert found == pytest.approx([1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4])
    small: Any = specification("inception_bn_small")
    hyper = small.hyperparameters("reference", "v1")
    assert small.recipe_rate(hyper, 389) == pytest.approx(0.1)
    assert small.recipe_rate(hyper, 49 * 390) == pytest.approx(0.1 * 0.94**49)


def test_rate_scales_with_batch_only_in_quality_runs() -> None:
    resnet: Any = specification("resnet50")
    twice = job("resnet50", "quality", 512, warmup_steps="0")
    assert resnet.learning_rate(twice, 0, 1) == pytest.approx(0.512)
    assert resnet.learning_rate(twice, 100, 1) == pytest.approx(2 * resnet.recipe_rate(twice.hyper, 200))
    assert resnet.learning_rate(replace(twice, mode="throughput"), 0, 1) == pytest.approx(0.256)


def test_best_classes_resolve_ties_to_lower_class() -> None:
    logits = np.array([[0, 2, 1, 2, 0, 3, -1], [1, 1, 1, 1, 1, 1, 1]], np.float32)
    found = best(logits, np.array([4, 7], np.int32))
    assert found["top5"].tolist() == [[5, 1, 3, 2, 0], [0, 1, 2, 3, 4]]
    assert found["top5"].dtype == np.int32
    assert found["index"].tolist() == [4, 7]
    assert best(logits[:, :4], np.arange(2))["top5"].shape == (2, 4)
