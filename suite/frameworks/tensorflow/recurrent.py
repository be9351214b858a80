"""Parts of recurrent models in TensorFlow: an LSTM layer with its gradient, dropout, products with weights.

Sequences are time-major, [T, B, width], with static T. Not Keras's LSTM: it differs between Keras 2
and 3, and its gradient runs every small operation of every step twice.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from suite.frameworks.tensorflow.recurrent_loop import looped_lstm

Tensor = Any
State = tuple[Tensor, Tensor]  # hidden and cell, each [B, H]


@dataclass
class Dropout:
    """Inverted dropout; tests may set masks (1 keeps) by name, [B, T, width].

    ``seed`` is [2] int64 and changes with each step.
    """

    rate: float = 0.0
    seed: Tensor = None
    masks: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` [T, B, width] after the dropout ``name``."""
        if name in self.masks:
            mask = tf.cast(tf.transpose(self.masks[name], (1, 0, 2)), inputs.dtype)
            return inputs * mask / (1.0 - self.rate)
        if self.rate <= 0.0:
            return inputs
        offset = tf.constant((zlib.crc32(name.encode()), 0), tf.int64)
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed=self.seed + offset)


NO_DROPOUT = Dropout()


def project(weights: Mapping[str, Tensor], name: str, inputs: Tensor) -> Tensor:
    """[..., in] times the transposed weight ``name`` [out, in]."""
    if f"{name}.transposed" in weights:
        return tf.tensordot(inputs, weights[f"{name}.transposed"], axes=1)
    return tf.tensordot(inputs, weights[name], axes=((-1,), (1,)))


def with_transposed(weights: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """``weights``, and transposed copies of those in ``names`` for :func:`project`.

    On a CPU a product of few rows that transposes its operand takes three times as long.
    """
    return dict(weights) | {f"{name}.transposed": tf.transpose(weights[name]) for name in names}


@tf.custom_gradient
def _lstm(inputs: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, *state: Tensor) -> Any:
    """Outputs [T, B, H] and the last cell [B, H] for inputs [T, B, in], and their gradient.

    The gradient is written by hand, so that products with the inputs and gradients of weights are one product
    over all steps, and each step computes only values that depend on the step before. States are detached: no
    gradient enters through the last state or leaves through the first. Without ``state`` the first is zero.
    """
    steps, batch, width = inputs.shape
    size = recurrent.shape[1]
    flat = tf.reshape(inputs, (steps * batch, width))
    sums = tf.unstack(tf.reshape(tf.matmul(flat, kernel, transpose_b=True) + bias, (steps, batch, 4 * size)))
    # Transposed once: products of few rows that transpose themselves take three times as long on a CPU. The
    # check of the shape keeps the graph's optimiser from moving the transposition into the products.
    turned = tf.ensure_shape(tf.transpose(recurrent), (size, 4 * size))
    zero = tf.zeros((batch, size), inputs.dtype)
    first, start = state or (zero, zero)
    hidden, cells, gates, squashed = [first], [start], [], []
    for step in range(steps):
        recalled = bool(state) or step > 0
        total = sums[step] + tf.matmul(hidden[-1], turned) if recalled else sums[step]
        enter, forget, _, leave = tf.split(tf.sigmoid(total), 4, axis=1)
        candidate = tf.tanh(total[:, 2 * size : 3 * size])
        cells.append(forget * cells[-1] + enter * candidate)
        squashed.append(tf.tanh(cells[-1]))
        hidden.append(leave * squashed[-1])
        gates.append((enter, forget, candidate, leave))

    def gradient(upstream: Tensor, _: Tensor) -> Any:
        enter, forget, candidate, leave = (tf.stack(gate) for gate in zip(*gates, strict=True))
        tops = tf.stack(squashed)
        into_cell = tf.unstack(leave * (1 - tops * tops))
        slopes = (
            candidate * enter * (1 - enter),
            tf.stack(cells[:-1]) * forget * (1 - forget),
            enter * (1 - candidate * candidate),
        )
        from_cell = tf.unstack(tf.concat(slopes, axis=2))
        from_hidden = tf.unstack(tops * leave * (1 - leave))
        arriving = tf.unstack(upstream)
        back_hidden, back_cell = zero, zero
        slopes_of_steps = [zero] * steps
        for step in reversed(range(steps)):
            back_hidden = arriving[step] + back_hidden
            back_cell = back_cell + back_hidden * into_cell[step]
            inner = tf.tile(back_cell, (1, 3)) * from_cell[step]
            slopes_of_steps[step] = tf.concat((inner, back_hidden * from_hidden[step]), axis=1)
            back_hidden = tf.matmul(slopes_of_steps[step], recurrent)
            back_cell = back_cell * gates[step][1]
        slope = tf.concat(slopes_of_steps, axis=0)
        before = tf.concat(hidden[:-1], axis=0)
        return (
            tf.reshape(tf.matmul(slope, kernel), (steps, batch, width)),
            tf.matmul(slope, flat, transpose_a=True),
            tf.matmul(slope, before, transpose_a=True),
            tf.reduce_sum(slope, axis=0),
            *[None] * len(state),
        )

    return (tf.stack(hidden[1:]), cells[-1]), gradient


# Traced once for each shape, and not once for each layer.
_unrolled = tf.function(_lstm, autograph=False)
_looped = tf.function(looped_lstm, autograph=False)


def lstm(
    inputs: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, state: State | None = None
) -> tuple[Tensor, State]:
    """Outputs [T, B, H] and the last state of one LSTM; without ``state`` it starts from zero.

    Weights are [4H, in], [4H, H] and [4H], gates i, f, g, o. No gradient flows through states.
    """
    by_xla = not tf.executing_eagerly() and tf.config.get_visible_devices("GPU")
    layer = _looped if by_xla else _unrolled
    outputs, cell = layer(inputs, kernel, recurrent, bias, *(state or ()))
    return outputs, (outputs[-1], cell)
