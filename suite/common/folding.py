"""Folding of normalisations into the preceding convolutions, for inference with fixed statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common import layers

Arrays = dict[str, NDArray[Any]]


def fold(
    network: Sequence[layers.Layer], weights: Mapping[str, Any], statistics: Mapping[str, Any]
) -> Arrays:
    """The weights of :func:`suite.common.layers.folded`, computed in float64, by canonical name.

    ``(w x + b - mean) / sqrt(variance + epsilon) * gamma + beta`` is one convolution with other weights.
    """
    result = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    for conv, norm in layers.normalised(network):
        root = np.sqrt(np.asarray(statistics[f"{norm.name}.variance"], np.float64) + float(norm.epsilon))
        scale = result.pop(f"{norm.name}.gamma") / root
        shift = result.get(f"{conv.name}.bias", 0.0) - np.asarray(statistics[f"{norm.name}.mean"], np.float64)
        result[f"{conv.name}.bias"] = result.pop(f"{norm.name}.beta") + shift * scale
        result[f"{conv.name}.weight"] = result[f"{conv.name}.weight"] * scale[:, None, None, None]
    return result


def one_bias(
    network: Sequence[layers.Layer], weights: Mapping[str, Any]
) -> tuple[layers.Network, dict[str, Any]]:
    """The folded ``network`` without biases of projections, and its ``weights``.

    The bias of the convolution that a projection is added to is the sum of both. That is less work, and XLA
    of TensorFlow 2.21 tunes a convolution with a bias and no ReLU for 40 s on a GPU, others for a second.
    """
    result, moved = [], dict(weights)
    for layer in network:
        if isinstance(layer, layers.Residual) and layer.shortcut:
            last, projection = layer.body[-1], layer.shortcut[-1]
            if isinstance(last, layers.Conv) and isinstance(projection, layers.Conv):
                moved[f"{last.name}.bias"] = moved[f"{last.name}.bias"] + moved.pop(f"{projection.name}.bias")
                shortcut = (*layer.shortcut[:-1], replace(projection, bias=False))
                layer = replace(layer, shortcut=shortcut)
        result.append(layer)
    return tuple(result), moved


def initial_statistics(network: Sequence[layers.Layer]) -> Arrays:
    """Means of zero and variances of one, by name (``<norm>.mean``, ``<norm>.variance``)."""
    result: Arrays = {}
    for norm in layers.statistics(network):
        result[f"{norm.name}.mean"] = np.zeros(norm.channels, np.float32)
        result[f"{norm.name}.variance"] = np.ones(norm.channels, np.float32)
    return result


def expected_statistics(network: Sequence[layers.Layer]) -> Arrays:
    """Means of zero, and the variances of each layer's input for images of variance one, by name.

    For inference with untrained weights: if normalised by variances of one, the activations of a deep network
    leave the range of half precision. Each product multiplies the second moment by its inputs and the
    variance of its weights, a ReLU halves it (exact for centred values), concatenated branches take the
    largest, a residual the sum.
    """
    result = initial_statistics(network)
    _second_moment(network, 1.0, result)
    return result


def _second_moment(network: Sequence[layers.Layer], moment: float, result: Arrays) -> float:
    """The second moment of the output for an input of ``moment``; fills in the variances of ``result``."""
    for layer in network:
        if isinstance(layer, layers.Conv):
            moment *= layer.inputs * layer.kernel[0] * layer.kernel[1] * _variance(*layer.init)
        elif isinstance(layer, layers.Dense):
            moment *= layer.inputs * _variance(*layer.init)
        elif isinstance(layer, layers.BatchNorm):
            result[f"{layer.name}.variance"].fill(moment)
            moment = float(layer.gamma) ** 2 + float(layer.beta) ** 2
        elif isinstance(layer, layers.Relu):
            moment /= 2
        elif isinstance(layer, layers.Concat):
            moment = max(_second_moment(branch, moment, result) for branch in layer.branches)
        elif isinstance(layer, layers.Residual):
            shortcut = _second_moment(layer.shortcut, moment, result)
            moment = _second_moment(layer.body, moment, result) + shortcut
    return moment


def _variance(distribution: str, scale: str) -> float:
    """The variance of an initial weight: see :class:`suite.contract.Parameter`."""
    return float(scale) ** 2 / (3 if distribution == "uniform" else 1)


def decays(network: Sequence[layers.Layer]) -> list[float]:
    """The ``decay`` of each running statistic, in the order of :func:`initial_statistics`.

    Rounded to float32, as in MXNet's operator; otherwise float64 results would differ in the eighth digit.
    """
    return [float(np.float32(float(norm.decay))) for norm in layers.statistics(network) for _ in range(2)]
