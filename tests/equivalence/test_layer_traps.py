"""Layers that are easy to get wrong compute what the specification requires, against loops in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suite.common import layers
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import arrays_of
from tests.equivalence.layer_traps import NETWORKS, given

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The outputs by framework, each run once."""
    return arrays_of("tests.equivalence.layer_traps", tmp_path_factory.mktemp("traps"))


def windows(x: Array, layer: Any, kernel: tuple[int, int], padding: tuple[int, int], fill: float) -> Array:
    """[n, channels, rows, columns, height, width]: what each window of the layer sees."""
    count = layers.output_shape((layer,), x.shape[1:])[1:]
    (top, left), reach = padding, [(n - 1) * layer.stride + k for n, k in zip(count, kernel, strict=True)]
    after = [max(edge, r - side - edge) for r, side, edge in zip(reach, x.shape[2:], padding, strict=True)]
    wide = np.pad(x, ((0, 0), (0, 0), (top, after[0]), (left, after[1])), constant_values=fill)
    found = np.empty((*x.shape[:2], *count, *kernel))
    for row in range(count[0]):
        for column in range(count[1]):
            i, j = row * layer.stride, column * layer.stride
            found[:, :, row, column] = wide[:, :, i : i + kernel[0], j : j + kernel[1]]
    return found


def expected(network: layers.Network, x: Array, weights: dict[str, Array]) -> Array:
    """The output by the definition of each layer."""
    for layer in network:
        if isinstance(layer, layers.Conv):
            seen = windows(x, layer, layer.kernel, layer.padding, 0.0)
            bias = weights[f"{layer.name}.bias"][:, None, None]
            x = np.einsum("ncijhw,ochw->noij", seen, weights[f"{layer.name}.weight"]) + bias
        elif isinstance(layer, (layers.AveragePool, layers.MaxPool)):
            fill = 0.0 if isinstance(layer, layers.AveragePool) else -np.inf
            seen = windows(x, layer, (layer.kernel,) * 2, (layer.padding,) * 2, fill)
            x = seen.mean(axis=(4, 5)) if isinstance(layer, layers.AveragePool) else seen.max(axis=(4, 5))
        elif isinstance(layer, layers.GlobalAverage):
            x = x.mean(axis=(2, 3))
        elif isinstance(layer, layers.Flatten):
            x = x.reshape(len(x), -1)
        elif isinstance(layer, layers.Concat):
            x = np.concatenate([expected(branch, x, weights) for branch in layer.branches], axis=1)
    return x


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", NETWORKS)
def test_layer_is_as_specified(computed: Any, framework: str, name: str) -> None:
    _, network = NETWORKS[name]
    x, weights = given(name)
    found = computed(framework)[name]
    assert found.shape == (2, *layers.output_shape(network, x.shape[1:]))
    np.testing.assert_allclose(found, expected(network, x, weights), rtol=1e-12, atol=1e-12)


def test_plain_loops_distinguish_padding_from_image() -> None:
    """Checks the reference where it can be computed by hand."""
    x = -np.ones((1, 1, 2, 2))
    assert expected((layers.AveragePool(3, 1, 1),), x, {}).tolist() == [[[[-4 / 9] * 2] * 2]]
    assert expected((layers.MaxPool(3, 1, 1),), x, {}).tolist() == [[[[-1.0] * 2] * 2]]
    assert expected((layers.MaxPool(2, 2, ceil=True),), -np.ones((1, 1, 3, 3)), {}).shape == (1, 1, 2, 2)
