"""NeuMF as a user would write it in JAX: a pure function of named arrays, ``value_and_grad``, Adam."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from peers.jax_common import Batch, Weights, adam, adam_start, cast, plain, start
from peers.plain import Plain
from suite.contract import Job
from suite.workloads.ncf import spec


def initial(dims: spec.Dimensions) -> Weights:
    """Embeddings N(0, 0.01), kernels [inputs, outputs] by Glorot's rule, biases zero."""
    shapes = {
        "mf_user": (dims.users, dims.factors),
        "mf_item": (dims.items, dims.factors),
        "mlp_user": (dims.users, dims.half),
        "mlp_item": (dims.items, dims.half),
    }
    keys = iter(jax.random.split(jax.random.key(1), 16))
    weights = {name: 0.01 * jax.random.normal(next(keys), shape) for name, shape in shapes.items()}
    sizes = [*zip(dims.layers, dims.layers[1:], strict=False), (dims.factors + dims.layers[-1], 1)]
    for layer, size in enumerate(sizes):
        weights[f"kernel{layer}"] = jax.nn.initializers.glorot_uniform()(next(keys), size)
        weights[f"bias{layer}"] = jnp.zeros(size[1])
    return weights


def logits(weights: Weights, batch: Batch, layers: int, dtype: Any) -> Any:
    """Logits [B]: two embeddings multiplied, two through ``layers`` hidden layers, joined by one output.

    Rows are converted to ``dtype`` after they are read: GPUs add up gradients of half precision slowly.
    """
    ids = {"user": batch["users"], "item": batch["items"]}
    rows = {
        name: weights[name][ids[name.partition("_")[2]]].astype(dtype)
        for name in ("mf_user", "mf_item", "mlp_user", "mlp_item")
    }
    weights = cast({name: weight for name, weight in weights.items() if name not in rows}, dtype)
    product = rows["mf_user"] * rows["mf_item"]
    hidden = jnp.concatenate((rows["mlp_user"], rows["mlp_item"]), axis=1)
    for layer in range(layers):
        hidden = jax.nn.relu(hidden @ weights[f"kernel{layer}"] + weights[f"bias{layer}"])
    joined = jnp.concatenate((product, hidden), axis=1)
    return (joined @ weights[f"kernel{layers}"] + weights[f"bias{layers}"])[:, 0].astype(jnp.float32)


def make(job: Job) -> Plain:
    """Training or scoring."""
    dtype = start(job)
    dims = spec.dimensions(job.key.scale, job.key.variant)
    weights, layers = initial(dims), len(dims.layers) - 1

    def loss_of(weights: Weights, batch: Batch) -> Any:
        scores = logits(weights, batch, layers, dtype)
        return jnp.mean(jax.nn.softplus(scores) - batch["labels"] * scores)

    def train(weights: Weights, state: Any, batch: Batch) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        return *adam(weights, gradients, state, 1e-3), loss

    def infer(weights: Weights, state: Any, batch: Batch) -> Any:
        return state, jax.nn.sigmoid(logits(weights, batch, layers, dtype))

    if job.key.phase == "train":
        return plain(weights, adam_start(weights), train, job)
    return plain(cast(weights, dtype), (), infer, job)
