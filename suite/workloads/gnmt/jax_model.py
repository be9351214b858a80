"""GNMT in JAX as functions of named weights, structured as ``pytorch_model``.

Sequences are time-major internally, [T, B, H]. Weights are in the compute type; the embedding may be a
master, because only the rows that a batch reads are cast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from suite.frameworks.jax import recurrent
from suite.frameworks.jax.recurrent import Dropout, project, wide
from suite.workloads.gnmt import spec

Tensor = Any
Weights = Mapping[str, Tensor]
MASKED = -65504.0  # the most negative finite fp16 number


def embed(weights: Weights, tokens: Tensor) -> Tensor:
    """Rows [..., H] of the embedding in the compute type."""
    return weights["embedding"][tokens].astype(weights["classifier.bias"].dtype)


def _parts(weights: Weights, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """The three weights of the LSTM ``name``."""
    return weights[f"{name}.input"], weights[f"{name}.hidden"], weights[f"{name}.bias"]


def lstm(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """The LSTM ``name`` over [T, B, in] from a zero state."""
    return recurrent.lstm(inputs, *_parts(weights, name))[0]


def reversed_rows(lengths: Tensor, steps: int) -> Tensor:
    """Positions [T, B] that reverse each sentence within its length and keep the padding at the end."""
    position = jnp.arange(steps)[:, None]
    return jnp.where(position < lengths, lengths - 1 - position, position)


@jax.custom_vjp
def reverse(inputs: Tensor, rows: Tensor) -> Tensor:
    """Reorder [T, B, H] in time by ``rows`` of :func:`reversed_rows`; its gradient is the same reordering."""
    return jnp.take_along_axis(inputs, rows[:, :, None], axis=0)


reverse.defvjp(
    lambda inputs, rows: (reverse(inputs, rows), rows), lambda rows, slope: (reverse(slope, rows), None)
)


def encode(weights: Weights, layers: int, source: Tensor, lengths: Tensor, drop: Dropout) -> Tensor:
    """Encoder outputs [S, B, H] of ``source`` [B, S] with true ``lengths`` [B]."""
    inputs = drop("encoder.0", embed(weights, source.T))
    rows = reversed_rows(lengths, source.shape[1])
    both = [_parts(weights, f"encoder.0.{direction}") for direction in ("forward", "backward")]
    forward, backward = recurrent.lstms((inputs, reverse(inputs, rows)), both)
    joined = jnp.concatenate((forward, reverse(backward, rows)), axis=2)
    outputs = lstm(weights, "encoder.1", drop("encoder.1", joined))
    for layer in range(2, layers):
        name = f"encoder.{layer}"
        outputs = outputs + lstm(weights, name, drop(name, outputs))
    return outputs


class Memory(NamedTuple):
    """The source for attention: outputs and keys [B, S, H], scaled vector [H], mask of padding [B, 1, S]."""

    outputs: Tensor
    keys: Tensor
    vector: Tensor
    padding: Tensor

    @classmethod
    def of(cls, weights: Weights, outputs: Tensor, lengths: Tensor) -> Memory:
        """Prepare the attention over encoder ``outputs`` [S, B, H]."""
        outputs = outputs.transpose((1, 0, 2))
        keys = project(outputs, weights["attention.key"], weights["attention.b"])
        vector = weights["attention.v"].astype(wide(outputs.dtype))
        vector = vector / jnp.linalg.norm(vector) * weights["attention.g"].astype(vector.dtype)
        return cls(outputs, keys, vector, (jnp.arange(outputs.shape[1]) >= lengths[:, None])[:, None])


def _tanh(queries: Tensor, keys: Tensor, dtype: Any) -> Tensor:
    """The tanh of all sums [B, T, S, H]."""
    return jnp.tanh(queries[:, :, None].astype(dtype) + keys[:, None].astype(dtype))


@jax.custom_vjp
def score(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Scores [B, T, S] = sum over H of tanh(query + key) * vector, for [B, T, H], [B, S, H] and [H].

    The gradient computes the tanh again: no [B, T, S, H] is kept from the forward to the backward pass.
    """
    return jnp.sum(_tanh(queries, keys, vector.dtype) * vector, axis=3)


def _score(queries: Tensor, keys: Tensor, vector: Tensor) -> tuple[Tensor, Any]:
    return score(queries, keys, vector), (queries, keys, vector)


def _score_slopes(kept: Any, slope: Tensor) -> Any:
    return lax.platform_dependent(*kept, slope, cpu=_by_one_tanh, default=_by_three)


def _by_one_tanh(queries: Tensor, keys: Tensor, vector: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    """The gradients of queries, keys and vector, with [B, T, S, H] stored in between: faster on a CPU."""
    joined = _tanh(queries, keys, vector.dtype)
    inner = slope[..., None] * (1 - joined * joined) * vector
    to_queries, to_keys = (jnp.sum(inner, axis=axis) for axis in (2, 1))
    to_vector = jnp.sum(slope[..., None] * joined, axis=(0, 1, 2))
    return to_queries.astype(queries.dtype), to_keys.astype(keys.dtype), to_vector


def _by_three(queries: Tensor, keys: Tensor, vector: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    """The same, one gradient after the other, so that XLA has nothing to share and therefore to store."""
    to_queries = _by_one_tanh(queries, keys, vector, slope)[0]
    queries, keys, to_queries = lax.optimization_barrier((queries, keys, to_queries))
    to_keys = _by_one_tanh(queries, keys, vector, slope)[1]
    queries, keys, to_keys = lax.optimization_barrier((queries, keys, to_keys))
    return to_queries, to_keys, _by_one_tanh(queries, keys, vector, slope)[2]


score.defvjp(_score, _score_slopes)


def align(weights: Weights, memory: Memory, queries: Tensor) -> Tensor:
    """Attention [B, T, S] of queries [B, T, H] to the source, normalised Bahdanau."""
    scores = score(project(queries, weights["attention.query"]), memory.keys, memory.vector)
    return jax.nn.softmax(jnp.where(memory.padding, MASKED, scores), axis=2)


def weigh(memory: Memory, attention: Tensor) -> Tensor:
    """Context vectors [B, T, H]: the encoder's outputs weighted by ``attention`` [B, T, S]."""
    return jnp.matmul(attention.astype(memory.outputs.dtype), memory.outputs)


def decode(weights: Weights, layers: int, target: Tensor, memory: Memory, drop: Dropout) -> Tensor:
    """Decoder outputs [T, B, H] before the classifier, for given ``target`` [B, T] (teacher forcing)."""
    outputs = lstm(weights, "decoder.0", drop("decoder.0", embed(weights, target.T)))
    context = weigh(memory, align(weights, memory, outputs.transpose((1, 0, 2)))).transpose((1, 0, 2))
    for layer in range(1, layers):
        name = f"decoder.{layer}"
        new = lstm(weights, name, drop(name, jnp.concatenate((outputs, context), axis=2)))
        outputs = new + outputs if layer > 1 else new
    return outputs


def classify(weights: Weights, outputs: Tensor) -> Tensor:
    """Logits [..., V]."""
    return project(outputs, weights["classifier.weight"], weights["classifier.bias"])


def for_decoding(weights: Weights, layers: int) -> dict[str, Tensor]:
    """``weights`` for decoding steps: matrices of each decoder layer joined, [in + H, 4H], classifier [H, V].

    A step then computes one product per layer, and none with a transposed matrix, which takes longer for few
    rows on a CPU.
    """
    joined = {"classifier.transposed": weights["classifier.weight"].T}
    for name in (f"decoder.{layer}" for layer in range(layers)):
        parts = weights[f"{name}.input"], weights[f"{name}.hidden"]
        joined[f"{name}.joined"] = jnp.concatenate(parts, axis=1).T
    replaced = {f"decoder.{layer}.{part}" for layer in range(layers) for part in ("input", "hidden")}
    replaced.add("classifier.weight")
    return {name: weight for name, weight in weights.items() if name not in replaced} | joined


def start_of(memory: Memory, layers: int, rows: int) -> list[Tensor]:
    """The zero state before the first word: hidden and cell [rows, H] of each layer."""
    return [jnp.zeros((rows, memory.outputs.shape[2]), memory.outputs.dtype)] * (2 * layers)


def decode_step(weights: Weights, memory: Memory, token: Tensor, state: list[Tensor]) -> Any:
    """Logits [B K, V] of the word after ``token`` [B K], attention [B, K, S], and the new state.

    ``weights`` are those of :func:`for_decoding`. The K beams of a sentence are adjacent rows.
    """
    after: list[Tensor] = []

    def cell(layer: int, *inputs: Tensor) -> Tensor:
        name, (hidden, memory_cell) = f"decoder.{layer}", state[2 * layer : 2 * layer + 2]
        total = jnp.concatenate((*inputs, hidden), axis=1) @ weights[f"{name}.joined"]
        total = (total + weights[f"{name}.bias"]).astype(wide(hidden.dtype))
        enter, forget, candidate, leave = jnp.split(total, 4, axis=1)
        memory_cell = jax.nn.sigmoid(forget) * memory_cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        new = jax.nn.sigmoid(leave) * jnp.tanh(memory_cell)
        after.extend((new.astype(hidden.dtype), memory_cell.astype(hidden.dtype)))
        return after[-2]

    outputs = cell(0, embed(weights, token))
    attention = align(weights, memory, outputs.reshape(memory.outputs.shape[0], -1, outputs.shape[1]))
    context = weigh(memory, attention).reshape(outputs.shape)
    for layer in range(1, len(state) // 2):
        new = cell(layer, outputs, context)
        outputs = new + outputs if layer > 1 else new
    logits = outputs @ weights["classifier.transposed"] + weights["classifier.bias"]
    return logits, attention, after


def generate(weights: Weights, layers: int, memory: Memory, steps: int) -> Tensor:
    """Greedy tokens [B, steps] int32; EOS does not stop a sentence. Weights as for :func:`decode_step`."""
    batch = memory.outputs.shape[0]

    def advance(carried: tuple[Tensor, list[Tensor]], _: None) -> Any:
        logits, _, state = decode_step(weights, memory, *carried)
        token = jnp.argmax(logits, axis=1).astype(jnp.int32)
        return (token, state), token

    start = jnp.full((batch,), spec.BOS, jnp.int32), start_of(memory, layers, batch)
    _, tokens = lax.scan(advance, start, None, length=steps)
    return tokens.T
