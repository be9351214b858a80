"""Single layers that are easy to get wrong in some framework, computed in one framework's interpreter.

``python -m tests.equivalence.layer_traps FRAMEWORK FILE`` writes the output of each network in float64.
Most inputs are negative, so that padding with zeros would change a maximum.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from suite.common import channels_last, layers
from suite.common.stream import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PLAIN = ("normal", "1")
CHANNELS = 3


def conv(
    name: str, outputs: int, kernel: tuple[int, int], stride: int, padding: tuple[int, int]
) -> layers.Conv:
    """A convolution of three channels, with a bias."""
    return layers.Conv(name, CHANNELS, outputs, kernel, stride, padding, bias=True, init=PLAIN)


# name: side of the input, network
NETWORKS: dict[str, tuple[int, layers.Network]] = {
    "conv 3x3 stride 2, even side": (8, (conv("c", 4, (3, 3), 2, (1, 1)),)),
    "conv 7x7 stride 2, odd side": (9, (conv("c", 4, (7, 7), 2, (3, 3)),)),
    "conv 1x7": (8, (conv("c", 4, (1, 7), 1, (0, 3)),)),
    "conv stride 2 without padding": (8, (conv("c", 4, (3, 3), 2, (0, 0)),)),
    "average of padding": (5, (layers.AveragePool(3, 1, 1),)),
    "average of padding, stride 2": (6, (layers.AveragePool(3, 2, 1),)),
    "average without padding": (7, (layers.AveragePool(3, 2),)),
    "maximum of padding": (8, (layers.MaxPool(3, 2, 1),)),
    "maximum rounded down": (8, (layers.MaxPool(3, 2),)),
    "maximum rounded up": (8, (layers.MaxPool(3, 2, ceil=True),)),
    "maximum rounded up, 2x2": (7, (layers.MaxPool(2, 2, ceil=True),)),
    "maximum rounded up, nothing left": (9, (layers.MaxPool(3, 2, ceil=True),)),
    "maximum stride 1": (5, (layers.MaxPool(3, 1, 1, ceil=True),)),
    "global average": (5, (layers.GlobalAverage(),)),
    "flatten": (4, (layers.Flatten(),)),
    "concat in blocks": (
        4,
        (layers.Concat(((conv("a", 16, (1, 1), 1, (0, 0)),), (conv("b", 4, (1, 1), 1, (0, 0)),))),),
    ),
    "concat out of blocks": (
        4,
        (layers.Concat(((layers.MaxPool(1, 1),), (conv("b", 4, (1, 1), 1, (0, 0)),))),),
    ),
}


def given(name: str) -> tuple[Array, dict[str, Array]]:
    """Input [2, 3, side, side] and weights of the network ``name``."""
    side, network = NETWORKS[name]
    x = Stream("test", "trap", name).unit(2 * CHANNELS * side * side) - 0.9
    weights = {
        p.name: Stream("test", "trap", name, p.name).unit(p.size).reshape(p.shape) - 0.5
        for p in layers.parameters(network)
    }
    return x.reshape(2, CHANNELS, side, side), weights


def computed(framework: str, network: layers.Network, x: Array, weights: dict[str, Array]) -> Array:
    """The output, [2, channels, height, width] or [2, features]."""
    if framework == "pytorch":
        import torch

        from suite.frameworks.pytorch import layers as torch_layers

        tensors = {name: torch_layers.stored(torch.from_numpy(value)) for name, value in weights.items()}
        image = torch_layers.stored(torch.from_numpy(x))
        return torch_layers.compute(network, image, torch_layers.Pass(tensors)).numpy()
    if framework == "mxnet":
        import mxnet as mx

        from suite.frameworks.mxnet import layers as mxnet_layers

        nd = {name: mx.nd.array(value, dtype="float64") for name, value in weights.items()}
        run = mxnet_layers.Pass(mx.nd, nd, None)
        found: Array = mxnet_layers.compute(network, mx.nd.array(x, dtype="float64"), run).asnumpy()
        return found
    if framework == "jax":
        import jax

        from suite.frameworks.jax import layers as jax_layers

        with jax.enable_x64(True):
            arrays = {name: channels_last.stored(value) for name, value in weights.items()}
            image = x.transpose(0, 2, 3, 1)
            out = np.asarray(jax_layers.compute(network, jax.numpy.asarray(image), jax_layers.Pass(arrays)))
        return out.transpose(0, 3, 1, 2) if out.ndim == 4 else out
    import tensorflow as tf

    from suite.frameworks.tensorflow import layers as tf_layers

    held = {name: tf.constant(channels_last.stored(value)) for name, value in weights.items()}
    out = tf_layers.compute(network, tf.constant(x.transpose(0, 2, 3, 1)), tf_layers.Pass(held)).numpy()
    return out.transpose(0, 3, 1, 2) if out.ndim == 4 else out


def main(framework: str, file: str) -> None:
    """See the module."""
    np.savez(file, **{name: computed(framework, NETWORKS[name][1], *given(name)) for name in NETWORKS})  # type: ignore[arg-type, unused-ignore]


if __name__ == "__main__":
    main(*sys.argv[1:])
