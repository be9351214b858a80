"""GNMT in TensorFlow as functions of named weights, structured as ``pytorch_model``.

Sequences are time-major internally, [T, B, H], with static T.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from suite.frameworks.tensorflow import recurrent as tensorflow_recurrent
from suite.frameworks.tensorflow.recurrent import NO_DROPOUT, Dropout, project
from suite.workloads.gnmt import spec

Tensor = Any
Weights = Mapping[str, Tensor]
MASKED = -65504.0  # the most negative finite fp16 number


def lstm(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """The LSTM ``name`` over [T, B, in] from a zero state."""
    kernel, recurrent, bias = (weights[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
    return tensorflow_recurrent.lstm(inputs, kernel, recurrent, bias)[0]


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


def multiplied_in_steps(weights: Weights) -> list[str]:
    """The names of the ``weights`` that each decoding step multiplies with few rows."""
    names = [name for name in weights if name.startswith("decoder.") and not name.endswith(".bias")]
    return [*names, "attention.query", "classifier.weight"]


@dataclass
class Memory:
    """The source for attention: outputs and keys [B, S, H], scaled vector [H], mask of padding [B, 1, S]."""

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
    """The type for sums: fp32 for half precision, otherwise the tensor's type."""
    return tf.float32 if tensor.dtype in (tf.float16, tf.bfloat16) else tensor.dtype


def align(weights: Weights, memory: Memory, queries: Tensor) -> Tensor:
    """Attention [B, T, S] of queries [B, T, H] to the source, normalised Bahdanau."""
    projected = project(weights, "attention.query", queries)
    joined = tf.tanh(projected[:, :, None] + memory.keys[:, None])
    scores = tf.tensordot(tf.cast(joined, memory.vector.dtype), memory.vector, axes=1)
    scores = tf.where(memory.padding, tf.constant(MASKED, scores.dtype), scores)
    return tf.nn.softmax(scores)


def weigh(memory: Memory, attention: Tensor) -> Tensor:
    """Context vectors [B, T, H]: the encoder's outputs weighted by ``attention`` [B, T, S]."""
    return tf.matmul(tf.cast(attention, memory.outputs.dtype), memory.outputs)


def decode(weights: Weights, layers: int, target: Tensor, memory: Memory, drop: Dropout) -> Tensor:
    """Decoder outputs [T, B, H] before the classifier, for given ``target`` [B, T] (teacher forcing)."""
    inputs = drop("decoder.0", tf.gather(weights["embedding"], tf.transpose(target)))
    outputs = lstm(weights, "decoder.0", inputs)
    attention = align(weights, memory, tf.transpose(outputs, (1, 0, 2)))
    context = tf.transpose(weigh(memory, attention), (1, 0, 2))
    for layer in range(1, layers):
        name = f"decoder.{layer}"
        new = lstm(weights, name, drop(name, tf.concat((outputs, context), axis=2)))
        outputs = new + outputs if layer > 1 else new
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
    """Logits [B K, V] of the word after ``token`` [B K], attention [B, K, S], and the new state.

    The state is hidden and cell [B K, H] of every layer. The K beams of a sentence are adjacent rows.
    """
    after: list[Tensor] = []

    def cell(layer: int, inputs: Tensor) -> Tensor:
        name = f"decoder.{layer}"
        hidden, memory_cell = state[2 * layer], state[2 * layer + 1]
        total = project(weights, f"{name}.input", inputs) + project(weights, f"{name}.hidden", hidden)
        enter, forget, candidate, leave = tf.split(total + weights[f"{name}.bias"], 4, axis=1)
        memory_cell = tf.sigmoid(forget) * memory_cell + tf.sigmoid(enter) * tf.tanh(candidate)
        after.extend((tf.sigmoid(leave) * tf.tanh(memory_cell), memory_cell))
        return after[-2]

    outputs = cell(0, tf.gather(weights["embedding"], token))
    attention = align(weights, memory, tf.reshape(outputs, (memory.outputs.shape[0], -1, outputs.shape[1])))
    context = tf.reshape(weigh(memory, attention), outputs.shape)
    for layer in range(1, len(state) // 2):
        new = cell(layer, tf.concat((outputs, context), axis=1))
        outputs = new + outputs if layer > 1 else new
    return classify(weights, outputs), attention, after


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
    tokens = loop(
        lambda step, *_: step < steps, advance, start, parallel_iterations=1, maximum_iterations=steps
    )[2]
    return tf.transpose(tokens.stack())
