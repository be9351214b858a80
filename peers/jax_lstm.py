"""The LSTM language model as a user would write it in JAX: ``lax.scan`` over a cell, clipping, SGD.

The scan computes the products with the state only; those with the inputs are one product before it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from peers.jax_common import Batch, Weights, cast, clipped, dropout, plain, start, uniform
from peers.plain import Plain
from suite.contract import Job
from suite.workloads.lstm_ptb import spec


def lstm(weights: Weights, name: str, inputs: Any, state: Any) -> tuple[Any, Any]:
    """Outputs [T, B, H] of the LSTM ``name`` for [T, B, width], and the state (hidden, cell) moved on."""
    sums = inputs @ weights[f"{name}.input"] + weights[f"{name}.bias"]
    recurrent = weights[f"{name}.hidden"]

    def cell(state: Any, total: Any) -> Any:
        hidden, memory = state
        enter, forget, candidate, leave = jnp.split(total + hidden @ recurrent, 4, axis=1)
        memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(memory)
        return (hidden, memory), hidden

    state, outputs = lax.scan(cell, state, sums)
    return outputs, state


def lstm_shapes(name: str, inputs: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The shapes of an LSTM's weights; gates in the order input, forget, candidate, output."""
    width = 4 * hidden
    return {f"{name}.input": (inputs, width), f"{name}.hidden": (hidden, width), f"{name}.bias": (width,)}


def shapes(dims: spec.Dimensions) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights by name."""
    found: dict[str, tuple[int, ...]] = {"embedding": (dims.vocabulary, dims.hidden)}
    for layer in range(dims.layers):
        found |= lstm_shapes(f"lstm{layer}", dims.hidden, dims.hidden)
    return found | {"softmax": (dims.hidden, dims.vocabulary), "softmax_bias": (dims.vocabulary,)}


def token_losses(logits: Any, targets: Any) -> Any:
    """Negative log likelihoods of ``targets``, in fp32."""
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]


def make(job: Job) -> Plain:
    """Training with the state carried on, or negative log likelihoods."""
    dtype = start(job)
    dims = spec.dimensions(job.key.scale, job.key.variant)
    rate, clip = job.number("dropout"), job.number("clip")
    weights = uniform(shapes(dims), float(dims.spread))

    def losses(weights: Weights, states: Any, batch: Batch, key: Any, rate: float) -> Any:
        keys = jax.random.split(key, dims.layers + 1)
        values, after = weights["embedding"][batch["inputs"].T].astype(dtype), []
        weights = cast(weights, dtype)
        for layer in range(dims.layers):
            values = dropout(keys[layer], rate, values)
            values, moved = lstm(weights, f"lstm{layer}", values, states[layer])
            after.append(moved)
        logits = dropout(keys[-1], rate, values) @ weights["softmax"] + weights["softmax_bias"]
        return token_losses(logits, batch["targets"].T), after

    def loss_of(weights: Weights, states: Any, batch: Batch, key: Any) -> Any:
        found, after = losses(weights, states, batch, key, rate)
        return jnp.sum(found) / job.key.batch, after

    def train(weights: Weights, carried: Any, batch: Batch) -> Any:
        states, key = carried
        key, used = jax.random.split(key)
        gradient_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, states), gradients = gradient_of(weights, states, batch, used)
        weights = jax.tree.map(lambda weight, slope: weight - 1.0 * slope, weights, clipped(gradients, clip))
        return weights, (states, key), loss

    def infer(weights: Weights, carried: Any, batch: Batch) -> Any:
        found, states = losses(weights, carried[0], batch, carried[1], 0.0)
        return (states, carried[1]), found

    zero = [[jnp.zeros((job.key.batch, dims.hidden), dtype) for _ in range(2)] for _ in range(dims.layers)]
    carried = ([tuple(state) for state in zero], jax.random.key(2))
    if job.key.phase == "train":
        return plain(weights, carried, train, job)
    return plain(cast(weights, dtype), carried, infer, job)
