"""The LSTM layer of :mod:`recurrent` as loops over time, for XLA on a GPU.

XLA compiles the body of a loop once. Of an unrolled layer it compiles, and tries variants of, the products of
every step: minutes for a model of several layers. On a CPU without XLA the loop takes longer than the
unrolled layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Tensor = Any


@tf.custom_gradient
def looped_lstm(inputs: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, *state: Tensor) -> Any:
    """Outputs [T, B, H] and the last cell [B, H] for inputs [T, B, in], and their gradient.

    Arguments, results and products are those of ``recurrent._lstm``.
    """
    steps, batch, width = inputs.shape
    size = recurrent.shape[1]
    flat = tf.reshape(inputs, (steps * batch, width))
    sums = tf.matmul(flat, kernel, transpose_b=True) + bias
    zero = tf.zeros((batch, size), inputs.dtype)
    first, start = state or (zero, zero)

    def array(of: int, values: Tensor = None) -> Any:
        made = tf.TensorArray(inputs.dtype, steps, element_shape=(batch, of * size))
        return made if values is None else made.unstack(tf.reshape(values, (steps, batch, of * size)))

    sums_of = array(4, sums)

    def forward(step: Tensor, hidden: Tensor, cell: Tensor, *written: Any) -> Any:
        total = sums_of.read(step) + tf.matmul(hidden, recurrent, transpose_b=True)
        enter, forget, _, leave = tf.split(tf.sigmoid(total), 4, axis=1)
        candidate = tf.tanh(total[:, 2 * size : 3 * size])
        cell = forget * cell + enter * candidate
        hidden = leave * tf.tanh(cell)
        values = hidden, cell, tf.concat((enter, forget, candidate, leave), axis=1)
        kept = [into.write(step, value) for into, value in zip(written, values, strict=True)]
        return step + 1, hidden, cell, *kept

    found = _repeat(steps, forward, first, start, array(1), array(1), array(4))
    last = found[1]
    hidden, cells, gates = (written.stack() for written in found[2:])

    def gradient(upstream: Tensor, _: Tensor) -> Any:
        enter, forget, candidate, leave = tf.split(gates, 4, axis=2)
        tops, before = tf.tanh(cells), tf.concat((start[None], cells[:-1]), axis=0)
        slopes = (
            candidate * enter * (1 - enter),
            before * forget * (1 - forget),
            enter * (1 - candidate * candidate),
        )
        into_cell, from_cell = array(1, leave * (1 - tops * tops)), array(3, tf.concat(slopes, axis=2))
        from_hidden, forgets = array(1, tops * leave * (1 - leave)), array(1, forget)
        arriving = array(1, upstream)

        def backward(done: Tensor, back_hidden: Tensor, back_cell: Tensor, written: Any) -> Any:
            step = steps - 1 - done
            back_hidden = arriving.read(step) + back_hidden
            back_cell = back_cell + back_hidden * into_cell.read(step)
            inner = tf.tile(back_cell, (1, 3)) * from_cell.read(step)
            slope = tf.concat((inner, back_hidden * from_hidden.read(step)), axis=1)
            back_hidden = tf.matmul(slope, recurrent)
            return done + 1, back_hidden, back_cell * forgets.read(step), written.write(step, slope)

        slope = _repeat(steps, backward, zero, zero, array(4))[2].concat()
        earlier = tf.reshape(tf.concat((first[None], hidden[:-1]), axis=0), (steps * batch, size))
        return (
            tf.reshape(tf.matmul(slope, kernel), (steps, batch, width)),
            tf.matmul(slope, flat, transpose_a=True),
            tf.matmul(slope, earlier, transpose_a=True),
            tf.reduce_sum(slope, axis=0),
            *[None] * len(state),
        )

    return (hidden, last), gradient


def _repeat(steps: int, body: Callable[..., Any], *start: Any) -> Any:
    """The values after ``steps`` runs of ``body``, which takes the number of earlier runs and the values."""
    loop: Callable[..., Any] = tf.while_loop
    begin = tf.constant(0), *start
    bounds = {"parallel_iterations": 1, "maximum_iterations": steps}  # XLA needs the maximum
    return loop(lambda done, *_: done < steps, body, begin, **bounds)[1:]
