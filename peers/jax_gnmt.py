"""GNMT as a user would write it in JAX: ``lax.scan`` over LSTM cells, additive attention, Adam.

Training knows the target words, so that attention covers all target positions at once; inference decodes
greedily, one word in each step of a scan, to the length of the reference. On a GPU the gradient of the
attention computes its largest tensor again (``jax.checkpoint``), which would not fit at large batches.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from peers.jax_common import Batch, Weights, adam, adam_start, cast, clipped, dropout, plain, start, uniform
from peers.jax_lstm import lstm, lstm_shapes
from peers.plain import Plain
from suite.contract import Job
from suite.workloads.gnmt import spec

LAYERS = 4


def shapes(dims: spec.Dimensions) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights by name: four layers on either side, the first encoder layer twice."""
    hidden, wide = dims.hidden, 2 * dims.hidden
    found: dict[str, tuple[int, ...]] = {"embedding": (dims.vocabulary, hidden)}
    widths = {"forward": hidden, "backward": hidden, "encoder1": wide, "encoder2": hidden, "encoder3": hidden}
    widths |= {"decoder0": hidden, "decoder1": wide, "decoder2": wide, "decoder3": wide}
    for name, width in widths.items():
        found |= lstm_shapes(name, width, hidden)
    found |= {"query": (hidden, hidden), "key": (hidden, hidden), "v": (hidden,), "g": (1,), "b": (hidden,)}
    return found | {"classifier": (hidden, dims.vocabulary), "classifier_bias": (dims.vocabulary,)}


def zero_state(inputs: Any, hidden: int) -> Any:
    """Hidden and cell [B, H] of an LSTM over ``inputs`` [T, B, width]."""
    zero = jnp.zeros((inputs.shape[1], hidden), inputs.dtype)
    return zero, zero


class Model:
    """The network with ``weights`` in the type of the activations. Sequences are time-major, [T, B, H]."""

    def __init__(self, weights: Weights, key: Any, rate: float, on_gpu: bool) -> None:
        self.weights, self._key, self._rate = weights, key, rate
        self._scores = jax.checkpoint(scores) if on_gpu else scores

    def _drop(self, inputs: Any) -> Any:
        self._key, used = jax.random.split(self._key)
        return dropout(used, self._rate, inputs)

    def _lstm(self, name: str, inputs: Any) -> Any:
        state = zero_state(inputs, self.weights["b"].shape[0])
        return lstm(self.weights, name, self._drop(inputs), state)[0]

    def encode(self, source: Any, lengths: Any) -> Any:
        """Encoder outputs [S, B, H] of ``source`` [B, S] with ``lengths`` [B]."""
        position = jnp.arange(source.shape[1])[:, None]
        order = jnp.where(position < lengths, lengths - 1 - position, position)[:, :, None]
        inputs = self._drop(self.weights["embedding"][source.T])
        state = zero_state(inputs, inputs.shape[2])
        forward, _ = lstm(self.weights, "forward", inputs, state)
        backward, _ = lstm(self.weights, "backward", jnp.take_along_axis(inputs, order, axis=0), state)
        joined = jnp.concatenate((forward, jnp.take_along_axis(backward, order, axis=0)), axis=2)
        outputs = self._lstm("encoder1", joined)
        outputs = self._lstm("encoder2", outputs) + outputs
        return self._lstm("encoder3", outputs) + outputs

    def memory(self, source: Any, lengths: Any) -> tuple[Any, Any, Any]:
        """What attention reads: outputs and keys [B, S, H] of the encoder, and the padding [B, 1, S]."""
        outputs = self.encode(source, lengths).transpose((1, 0, 2))
        return outputs, outputs @ self.weights["key"] + self.weights["b"], (source == spec.PAD)[:, None]

    def attend(self, queries: Any, memory: tuple[Any, Any, Any]) -> Any:
        """Contexts [B, T, H] for ``queries`` [B, T, H]."""
        outputs, keys, padding = memory
        vector = self.weights["v"].astype(jnp.float32)
        vector = vector / jnp.linalg.norm(vector) * self.weights["g"].astype(jnp.float32)
        found = self._scores(queries @ self.weights["query"], keys, vector.astype(keys.dtype))
        shares = jax.nn.softmax(jnp.where(padding, -jnp.inf, found.astype(jnp.float32)))
        return shares.astype(outputs.dtype) @ outputs

    def decode(self, target: Any, memory: tuple[Any, Any, Any]) -> Any:
        """Logits [T, B, V] for the known words ``target`` [B, T]."""
        outputs = self._lstm("decoder0", self.weights["embedding"][target.T])
        context = self.attend(outputs.transpose((1, 0, 2)), memory).transpose((1, 0, 2))
        for layer in range(1, LAYERS):
            found = self._lstm(f"decoder{layer}", jnp.concatenate((outputs, context), axis=2))
            outputs = found + outputs if layer > 1 else found
        return self.classify(outputs)

    def classify(self, outputs: Any) -> Any:
        """Logits of decoder outputs."""
        return outputs @ self.weights["classifier"] + self.weights["classifier_bias"]

    def next_word(self, states: Any, token: Any, memory: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        """The states of the decoder's layers and the likeliest word [B] after the word ``token`` [B]."""
        after, outputs, context = [], self.weights["embedding"][token][None], jnp.zeros(())
        for layer, state in enumerate(states):
            inputs = jnp.concatenate((outputs, context), axis=2) if layer else outputs
            found, moved = lstm(self.weights, f"decoder{layer}", inputs, state)
            outputs = found + outputs if layer > 1 else found
            after.append(moved)
            if layer == 0:
                context = self.attend(outputs.transpose((1, 0, 2)), memory).transpose((1, 0, 2))
        return after, jnp.argmax(self.classify(outputs[0]), axis=1).astype(jnp.int32)


def scores(queries: Any, keys: Any, vector: Any) -> Any:
    """Scores [B, T, S] of queries [B, T, H] and keys [B, S, H]."""
    return jnp.sum(jnp.tanh(queries[:, :, None] + keys[:, None]) * vector, axis=3)


def make(job: Job) -> Plain:
    """Training, or greedy decoding of the reference length."""
    dtype = start(job)
    dims, on_gpu = spec.dimensions(job.key.scale, job.key.variant), job.device.startswith("cuda")
    weights = uniform(shapes(dims), 0.1)
    weights |= {"g": jnp.full((1,), dims.hidden**-0.5, jnp.float32), "b": jnp.zeros(dims.hidden)}
    rate, clip, smoothing = (job.number(name) for name in ("dropout", "clip", "smoothing"))

    def loss_of(weights: Weights, batch: Batch, key: Any) -> Any:
        model, targets = Model(cast(weights, dtype), key, rate, on_gpu), batch["target_out"].T
        memory = model.memory(batch["source"], batch["source_lengths"])
        logits = model.decode(batch["target_in"], memory).astype(jnp.float32)
        log_p = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_p, targets[..., None], axis=2)[..., 0]
        losses = -(1 - smoothing) * chosen - smoothing * jnp.mean(log_p, axis=2)
        return jnp.sum(losses * (targets != spec.PAD)) / targets.shape[1]

    def train(weights: Weights, carried: Any, batch: Batch) -> Any:
        state, key = carried
        key, used = jax.random.split(key)
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch, used)
        weights, state = adam(weights, clipped(gradients, clip), state, 1e-3)
        return weights, (state, key), loss

    def infer(weights: Weights, carried: Any, batch: Batch) -> Any:
        model, source = Model(weights, jax.random.key(0), 0.0, on_gpu), batch["source"]
        memory = model.memory(source, batch["source_lengths"])
        zero = jnp.zeros((len(source), dims.hidden), dtype)

        def advance(decoded: Any, _: None) -> Any:
            states, token = model.next_word(decoded[0], decoded[1], memory)
            return (states, token), token

        first = [(zero, zero)] * LAYERS, jnp.full(len(source), spec.BOS, jnp.int32)
        return carried, lax.scan(advance, first, length=batch["target_in"].shape[1])[1].T

    if job.key.phase == "train":
        return plain(weights, (adam_start(weights), jax.random.key(2)), train, job)
    return plain(cast(weights, dtype), (), infer, job)
