"""Normalisation folded into the convolution before it, for inference with fixed statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    found = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    for conv, norm in layers.normalised(network):
        root = np.sqrt(np.asarray(statistics[f"{norm.name}.variance"], np.float64) + float(norm.epsilon))
        scale = found.pop(f"{norm.name}.gamma") / root
        shift = found.get(f"{conv.name}.bias", 0.0) - np.asarray(statistics[f"{norm.name}.mean"], np.float64)
        found[f"{conv.name}.bias"] = found.pop(f"{norm.name}.beta") + shift * scale
        found[f"{conv.name}.weight"] = found[f"{conv.name}.weight"] * scale[:, None, None, None]
    return found


def initial_statistics(network: Sequence[layers.Layer]) -> Arrays:
    """Means of zero and variances of one, by name (``<norm>.mean``, ``<norm>.variance``)."""
    found: Arrays = {}
    for norm in layers.statistics(network):
        found[f"{norm.name}.mean"] = np.zeros(norm.channels, np.float32)
        found[f"{norm.name}.variance"] = np.ones(norm.channels, np.float32)
    return found


def expected_statistics(network: Sequence[layers.Layer]) -> Arrays:
    """Means of zero, and the variances that the initial weights give inputs of variance one, by name.

    For inference by a network that was never trained: normalised by variances of one, what a deep network
    computes leaves the range of half precision. Each product multiplies the second moment by its inputs and
    the variance of its weights, a ReLU halves it (of what is centred; less otherwise), branches take the
    largest, a residual the sum.
    """
    found = initial_statistics(network)
    _second_moment(network, 1.0, found)
    return found


def _second_moment(network: Sequence[layers.Layer], moment: float, found: Arrays) -> float:
    """That of the output for an input of ``moment``; fills in the variances of ``found`` on the way."""
    for layer in network:
        if isinstance(layer, layers.Conv):
            moment *= layer.inputs * layer.kernel[0] * layer.kernel[1] * _variance(*layer.init)
        elif isinstance(layer, layers.Dense):
            moment *= layer.inputs * _variance(*layer.init)
        elif isinstance(layer, layers.BatchNorm):
            found[f"{layer.name}.variance"].fill(moment)
            moment = float(layer.gamma) ** 2 + float(layer.beta) ** 2
        elif isinstance(layer, layers.Relu):
            moment /= 2
        elif isinstance(layer, layers.Concat):
            moment = max(_second_moment(branch, moment, found) for branch in layer.branches)
        elif isinstance(layer, layers.Residual):
            shortcut = _second_moment(layer.shortcut, moment, found)
            moment = _second_moment(layer.body, moment, found) + shortcut
    return moment


def _variance(distribution: str, scale: str) -> float:
    """That of an initial weight: see :class:`suite.contract.Parameter`."""
    return float(scale) ** 2 / (3 if distribution == "uniform" else 1)


def kept(network: Sequence[layers.Layer]) -> list[float]:
    """The part of each running statistic that a step keeps, in the order of :func:`initial_statistics`.

    As float32 holds it, for MXNet's op takes it so: else float64 would differ in the eighth digit.
    """
    return [float(np.float32(float(norm.decay))) for norm in layers.statistics(network) for _ in range(2)]
