"""Networks as data: shapes, parameters, cost, folding of normalisations, expected statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from suite.common import folding, layers
from suite.common.layers import (
    AveragePool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAverage,
    MaxPool,
    Relu,
    Residual,
)

INIT = ("normal", "1")


def conv(name: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, padding: int = 1) -> Conv:
    return Conv(name, inputs, outputs, (kernel, kernel), stride, (padding, padding), bias=False, init=INIT)


@pytest.mark.parametrize(
    ("layer", "side", "expected"),
    [
        (conv("c", 3, 8, 11, 4, 2), 224, 55),
        (conv("c", 3, 8, 7, 2, 3), 224, 112),
        (MaxPool(3, 2), 112, 55),
        (MaxPool(3, 2, ceil=True), 112, 56),
        (MaxPool(3, 2, 1), 112, 56),
        (MaxPool(2, 2, ceil=True), 7, 4),
        (MaxPool(2, 3, 1, ceil=True), 6, 3),
        (MaxPool(1, 3, ceil=True), 5, 2),  # the third window would start outside
        (AveragePool(3, 1, 1), 35, 35),
    ],
)
def test_output_shape_of_windows(layer: layers.Layer, side: int, expected: int) -> None:
    assert layers.output_shape((layer,), (3, side, side))[1:] == (expected, expected)


def test_network_shape_parameters_and_cost_follow_the_order_of_computation() -> None:
    network: layers.Network = (
        conv("stem", 3, 4),
        BatchNorm("norm", 4, "1e-5", "0.9", "0.5"),
        Relu(),
        Concat(((conv("a", 4, 2),), (), (MaxPool(3, 1, 1), conv("b", 4, 1)))),
        Residual((conv("c", 7, 7),), (conv("d", 7, 7, 1, 1, 0),)),
        GlobalAverage(),
        Dropout("drop"),
        Dense("classifier", 7, 5, INIT),
    )
    assert layers.output_shape(network, (3, 8, 8)) == (5,)
    assert layers.channels(network, 3) == 7
    parameters = layers.parameters(network)
    assert [p.name for p in parameters] == [
        *("stem.weight", "norm.gamma", "norm.beta", "a.weight", "b.weight", "c.weight", "d.weight"),
        *("classifier.weight", "classifier.bias"),
    ]
    assert {p.name: p.scale for p in parameters}["norm.gamma"] == "0.5"
    assert layers.decayed(network) == {p.name for p in parameters if p.name.endswith("weight")}
    pixels = 64 * 9
    forward = pixels * (3 * 4 + 4 * 2 + 4 + 49) + 64 * 49 + 35
    assert layers.macs(network, (3, 8, 8)) == forward
    assert layers.training_macs(network, (3, 8, 8)) == 3 * forward - pixels * 12


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ((conv("c", 4, 4),), "c: expected 4 inputs"),
        ((Dense("d", 4, 2, INIT),), "d: expected 4 inputs"),
        ((Concat(((conv("a", 3, 2),), (conv("b", 3, 2, 1, 2, 0),))),), "branches: expected equal heights"),
        ((Residual((conv("a", 3, 2),), ()),), r"residual: expected the shortcut's shape \(3, 8, 8\)"),
        ((MaxPool(9, 1),), "expected a side of at least 9, found 8"),
        ((Flatten(), GlobalAverage()), "expected an image"),
    ],
)
def test_output_shape_rejects_a_layer_that_does_not_fit_its_input(
    network: layers.Network, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        layers.output_shape(network, (3, 8, 8))


def test_folded_convolutions_compute_the_normalisation() -> None:
    """On 1x1 convolutions, whose result the test computes as a product; one with a bias and one without."""
    one = Conv("c", 3, 2, (1, 1), 1, (0, 0), bias=True, init=INIT)
    other = Conv("d", 2, 2, (1, 1), 1, (0, 0), bias=False, init=INIT)
    network: layers.Network = (
        *(one, BatchNorm("cn", 2, "0.1", "0.9"), Relu()),
        Residual((other, BatchNorm("dn", 2, "0.2", "0.9")), ()),
    )
    generator = np.random.RandomState(1)
    weights = {p.name: generator.uniform(-1, 1, p.shape) for p in layers.parameters(network)}
    statistics = {name: generator.uniform(0.5, 1, 2) for name in folding.initial_statistics(network)}
    x = generator.uniform(-1, 1, 3)

    def normal(values: np.ndarray, name: str, epsilon: float) -> np.ndarray:
        spread = np.sqrt(statistics[f"{name}.variance"] + epsilon)
        scaled = (values - statistics[f"{name}.mean"]) / spread
        return scaled * weights[f"{name}.gamma"] + weights[f"{name}.beta"]

    first = normal(weights["c.weight"][:, :, 0, 0] @ x + weights["c.bias"], "cn", 0.1)
    expected = normal(weights["d.weight"][:, :, 0, 0] @ first, "dn", 0.2)
    folded = folding.fold(network, weights, statistics)
    assert [p.name for p in layers.parameters(layers.folded(network))] == list(
        dict.fromkeys(("c.weight", "c.bias", "d.weight", "d.bias"))
    )
    assert set(folded) == {p.name for p in layers.parameters(layers.folded(network))}
    hidden = folded["c.weight"][:, :, 0, 0] @ x + folded["c.bias"]
    np.testing.assert_allclose(hidden, first, rtol=1e-12)
    output = folded["d.weight"][:, :, 0, 0] @ hidden + folded["d.bias"]
    np.testing.assert_allclose(output, expected, rtol=1e-12)


def test_bias_of_a_projection_moves_to_the_convolution_it_is_added_to() -> None:
    body, shortcut = (Conv(name, 2, 2, (1, 1), 1, (0, 0), bias=True, init=INIT) for name in "cd")
    plain = Residual((replace(body, name="e"),), ())
    network: layers.Network = (Residual((body,), (shortcut,)), plain)
    generator = np.random.RandomState(1)
    weights = {p.name: generator.uniform(-1, 1, p.shape) for p in layers.parameters(network)}
    found, moved = folding.one_bias(network, weights)
    assert found == (Residual((body,), (replace(shortcut, bias=False),)), plain)
    assert set(moved) == {p.name for p in layers.parameters(found)} == set(weights) - {"d.bias"}
    np.testing.assert_array_equal(moved["c.bias"], weights["c.bias"] + weights["d.bias"])
    assert all(moved[name] is weights[name] for name in set(moved) - {"c.bias"})


def test_expected_statistics_follow_the_initial_weights() -> None:
    wide = Conv("c", 3, 8, (3, 3), 1, (1, 1), bias=False, init=("normal", "0.1"))
    inner = Conv("d", 8, 8, (1, 1), 1, (0, 0), bias=False, init=("uniform", "0.5"))
    last = Conv("e", 8, 8, (1, 1), 1, (0, 0), bias=False, init=("normal", "0.5"))
    network: layers.Network = (
        *(wide, BatchNorm("cn", 8, "1e-5", "0.9"), Relu()),
        Residual((inner, BatchNorm("dn", 8, "1e-5", "0.9", gamma="0.5")), ()),
        *(last, BatchNorm("en", 8, "1e-5", "0.9")),
    )
    statistics = folding.expected_statistics(network)
    first, half = 27 * 0.01, 0.5  # the second moment of a ReLU behind a normalisation
    expected = {"cn": first, "dn": 8 * half * 0.25 / 3, "en": 8 * (0.25 + half) * 0.25}
    for name, variance in expected.items():
        np.testing.assert_allclose(statistics[f"{name}.variance"], variance, rtol=1e-6)
        assert not statistics[f"{name}.mean"].any()


def test_expected_statistics_match_random_images() -> None:
    conv = Conv("c", 3, 64, (3, 3), 1, (0, 0), bias=False, init=("normal", "0.2"))
    network: layers.Network = (conv, BatchNorm("cn", 64, "1e-5", "0.9"))
    generator = np.random.RandomState(2)
    images, kernel = generator.normal(size=(4000, 27)), generator.normal(scale=0.2, size=(27, 64))
    observed = float((images @ kernel).var())
    assert 0.9 < folding.expected_statistics(network)["cn.variance"][0] / observed < 1.1
