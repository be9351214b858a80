"""GNMT in TensorFlow as plain functions of named weights; the structure is that of ``pytorch_model``.

Sequences are time-major inside, [T, B, H], with static T. No Keras layer is used: its LSTM differs between
Keras 2 and 3, and its gradient runs every small operation of every step twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from suite.workloads.gnmt import spec

Tensor = Any
Weights = Mapping[str, Tensor]
MASKED = -65504.0  # the most negative finite fp16 number


@dataclass
class Dropout:
    """Inverted dropout on the input of every LSTM; tests may give the masks (1 keeps) by LSTM name.

    A given mask is [B, T, width]; the bidirectional layer has one mask, ``encoder.0``. ``seed`` is [2] int64,
    another one in each step.
    """

    rate: float = 0.0
    seed: Tensor = None
    masks: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` [T, B, width] of the LSTM ``name`` with some numbers dropped."""
        if name in self.masks:
            kept = tf.cast(tf.transpose(self.masks[name], (1, 0, 2)), inputs.dtype)
            return inputs * kept / (1.0 - self.rate)
        if self.rate <= 0.0:
            return inputs
        side, layer = name.split(".")
        place = tf.constant((0, int(layer) + (0 if side == "encoder" else 100)), tf.int64)
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed=self.seed * 1000 + place)


NO_DROPOUT = Dropout()


@tf.custom_gradient
def _lstm(inputs: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor) -> Any:
    """One LSTM from a zero state, [T, B, in] to [T, B, H], and its gradient.

    By hand because products with the inputs and all gradients of weights are then one product over all steps,
    and each step holds only what truly depends on the step before.
    """
    steps, batch, width = inputs.shape
    size = recurrent.shape[1]
    flat = tf.reshape(inputs, (steps * batch, width))
    sums = tf.unstack(tf.reshape(tf.matmul(flat, kernel, transpose_b=True) + bias, (steps, batch, 4 * size)))
    zero = tf.zeros((batch, size), inputs.dtype)
    hidden, cells, gates, squashed = [zero], [zero], [], []
    for step in range(steps):
        total = sums[step] + tf.matmul(hidden[-1], recurrent, transpose_b=True) if step else sums[step]
        enter, forget, _, leave = tf.split(tf.sigmoid(total), 4, axis=1)
        candidate = tf.tanh(total[:, 2 * size : 3 * size])
        cells.append(forget * cells[-1] + enter * candidate)
        squashed.append(tf.tanh(cells[-1]))
        hidden.append(leave * squashed[-1])
        gates.append((enter, forget, candidate, leave))

    def gradient(upstream: Tensor) -> Any:
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
        found = [zero] * steps
        for step in reversed(range(steps)):
            back_hidden = arriving[step] + back_hidden
            back_cell = back_cell + back_hidden * into_cell[step]
            inner = tf.tile(back_cell, (1, 3)) * from_cell[step]
            found[step] = tf.concat((inner, back_hidden * from_hidden[step]), axis=1)
            back_hidden = tf.matmul(found[step], recurrent)
            back_cell = back_cell * gates[step][1]
        slope = tf.concat(found, axis=0)
        before = tf.concat(hidden[:-1], axis=0)
        return (
            tf.reshape(tf.matmul(slope, kernel), (steps, batch, width)),
            tf.matmul(slope, flat, transpose_a=True),
            tf.matmul(slope, before, transpose_a=True),
            tf.reduce_sum(slope, axis=0),
        )

    return tf.stack(hidden[1:]), gradient


# Traced once for each shape, and not once for each layer.
_traced_lstm = tf.function(_lstm, autograph=False)


def lstm(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """One LSTM layer over [T, B, in] from a zero state; gates i, f, g, o."""
    return _traced_lstm(inputs, *(weights[f"{name}.{part}"] for part in ("input", "hidden", "bias")))


def encode(weights: Weights, layers: int, source: Tensor, lengths: Tensor, drop: Dropout) -> Tensor:
    """Encoder outputs [S, B, H] of ``source`` [B, S] with true ``lengths`` [B]."""
    inputs = drop("encoder.0", tf.gather(weights["embedding"], tf.transpose(source)))

    def reverse(sequence: Tensor) -> Tensor:
        return tf.reverse_sequence(sequence, lengths, seq_axis=0, batch_axis=1)

    forward = lstm(weights, "encoder.0.forward", inputs)
    backward = reverse(lstm(weights, "encoder.0.backward", reverse(inputs)))
    outputs = lstm(weights, "encoder.1", drop("encoder.1", tf.concat((forward, backward), axis=2)))
    for layer in range(2, layers):
        name = f"encoder.{layer}"
        outputs = outputs + lstm(weights, name, drop(name, outputs))
    return outputs


def project(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """[..., in] times the transposed weight ``name`` [out, in]."""
    return tf.tensordot(inputs, weights[name], axes=((-1,), (1,)))


@dataclass
class Memory:
    """For attention: outputs and keys [B, S, H], scaled vector [H], padding [B, 1, S]."""

    outputs: Tensor
    keys: Tensor
    vector: Tensor
    padding: Tensor

    @classmethod
    def of(cls, weights: Weights, outputs: Tensor, lengths: Tensor) -> Memory:
        """Prepare the attention over encoder ``outputs`` [S, B, H]."""
        outputs = tf.transpose(outputs, (1, 0, 2))
        vector = tf.cast(weights["attention.v"], _wide(outputs))
        vector = vector / tf.norm(vector) * tf.cast(weights["attention.g"], vector.dtype)
        keys = project(weights, "attention.key", outputs) + weights["attention.b"]
        padding = tf.logical_not(tf.sequence_mask(lengths, outputs.shape[1]))[:, None]
        return cls(outputs, keys, vector, padding)


def _wide(tensor: Tensor) -> Any:
    """fp32 for half precision, the tensor's own type otherwise."""
    return tf.float32 if tensor.dtype in (tf.float16, tf.bfloat16) else tensor.dtype


def align(weights: Weights, memory: Memory, queries: Tensor) -> Tensor:
    """Attention [B, T, S] of queries [B, T, H] to the source, normalised Bahdanau."""
    projected = project(weights, "attention.query", queries)
    joined = tf.tanh(projected[:, :, None] + memory.keys[:, None])
    scores = tf.tensordot(tf.cast(joined, memory.vector.dtype), memory.vector, axes=1)
    scores = tf.where(memory.padding, tf.constant(MASKED, scores.dtype), scores)
    return tf.nn.softmax(scores)


def weigh(memory: Memory, attention: Tensor) -> Tensor:
    """Context vectors [B, T, H]: the encoder's outputs weighed by ``attention`` [B, T, S]."""
    return tf.matmul(tf.cast(attention, memory.outputs.dtype), memory.outputs)


def decode(weights: Weights, layers: int, target: Tensor, memory: Memory, drop: Dropout) -> Tensor:
    """Decoder outputs [T, B, H] before the classifier, for given ``target`` [B, T] (teacher forcing)."""
    inputs = drop("decoder.0", tf.gather(weights["embedding"], tf.transpose(target)))
    outputs = lstm(weights, "decoder.0", inputs)
    attention = align(weights, memory, tf.transpose(outputs, (1, 0, 2)))
    context = tf.transpose(weigh(memory, attention), (1, 0, 2))
    for layer in range(1, layers):
        name = f"decoder.{layer}"
        found = lstm(weights, name, drop(name, tf.concat((outputs, context), axis=2)))
        outputs = found + outputs if layer > 1 else found
    return outputs


def classify(weights: Weights, outputs: Tensor) -> Tensor:
    """Logits [..., V]."""
    return project(weights, "classifier.weight", outputs) + weights["classifier.bias"]


def smoothed_loss(logits: Tensor, targets: Tensor, smoothing: float, dtype: Any) -> Tensor:
    """Sum over real positions of (1 - smoothing) nll + smoothing * mean of -log p; [..., V] and [...]."""
    log_p = tf.nn.log_softmax(tf.cast(logits, dtype))
    chosen = tf.gather(log_p, targets, axis=-1, batch_dims=len(targets.shape))
    rows = (smoothing - 1.0) * chosen - smoothing * tf.reduce_mean(log_p, axis=-1)
    return tf.reduce_sum(rows * tf.cast(targets != spec.PAD, dtype))


def decode_step(weights: Weights, memory: Memory, token: Tensor, state: list[Tensor]) -> Any:
    """Logits [B K, V] behind ``token`` [B K], attention [B, K, S], and the new state.

    The state is hidden and cell [B K, H] of every layer. A sentence may have K tokens beside each other, one
    for each beam.
    """
    moved: list[Tensor] = []

    def cell(layer: int, inputs: Tensor) -> Tensor:
        name = f"decoder.{layer}"
        hidden, memory_cell = state[2 * layer], state[2 * layer + 1]
        total = project(weights, f"{name}.input", inputs) + project(weights, f"{name}.hidden", hidden)
        enter, forget, candidate, leave = tf.split(total + weights[f"{name}.bias"], 4, axis=1)
        memory_cell = tf.sigmoid(forget) * memory_cell + tf.sigmoid(enter) * tf.tanh(candidate)
        moved.extend((tf.sigmoid(leave) * tf.tanh(memory_cell), memory_cell))
        return moved[-2]

    outputs = cell(0, tf.gather(weights["embedding"], token))
    attention = align(weights, memory, tf.reshape(outputs, (memory.outputs.shape[0], -1, outputs.shape[1])))
    context = tf.reshape(weigh(memory, attention), outputs.shape)
    for layer in range(1, len(state) // 2):
        found = cell(layer, tf.concat((outputs, context), axis=1))
        outputs = found + outputs if layer > 1 else found
    return classify(weights, outputs), attention, moved


def generate(weights: Weights, layers: int, source: Tensor, lengths: Tensor, steps: int) -> Tensor:
    """Greedy tokens [B, steps] int32; EOS does not stop a sentence."""
    memory = Memory.of(weights, encode(weights, layers, source, lengths, NO_DROPOUT), lengths)
    batch = source.shape[0]
    zero = tf.zeros((batch, memory.outputs.shape[2]), memory.outputs.dtype)
    written = tf.TensorArray(tf.int32, steps, element_shape=(batch,))

    def advance(step: Tensor, token: Tensor, written: Any, state: list[Tensor]) -> Any:
        logits, _, state = decode_step(weights, memory, token, state)
        token = tf.argmax(logits, axis=1, output_type=tf.int32)
        return step + 1, token, written.write(step, token), state

    start = (tf.constant(0), tf.fill((batch,), spec.BOS), written, [zero] * (2 * layers))
    loop: Callable[..., Any] = tf.while_loop
    found = loop(
        lambda step, *_: step < steps, advance, start, parallel_iterations=1, maximum_iterations=steps
    )[2]
    return tf.transpose(found.stack())
