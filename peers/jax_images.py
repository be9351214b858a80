"""Image classifiers as a user would write them in JAX: pure functions, ``lax`` convolutions, NHWC, SGD.

Difference to the suite: inference normalises by running statistics instead of folding them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from peers.jax_common import Batch, Weights, plain, start
from peers.jax_networks import NETWORKS, Model
from peers.plain import Plain
from suite import workloads
from suite.contract import Job


def initial(workload: str) -> tuple[Weights, Weights]:
    """Weights and running statistics of a network at its published size."""
    spec: Any = workloads.specification(workload)
    side = spec.SIZES["reference"].image

    model = Model({}, {}, jax.random.key(1), training=True, rate=0.0)

    def seen(images: Any) -> Weights:
        NETWORKS[workload](model, images)
        return model.seen

    shapes = jax.eval_shape(seen, jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32))
    statistics = {name: jnp.full(one.shape, float("variance" in name)) for name, one in shapes.items()}
    return model.initial(), statistics


def make(job: Job) -> Plain:
    """Training by SGD with momentum, or logits."""
    dtype = start(job)
    spec: Any = workloads.specification(job.key.workload)
    network, training = NETWORKS[job.key.workload], job.key.phase == "train"
    weights, statistics = initial(job.key.workload)
    mean, scale = (jnp.array([float(value) for value in values]) for values in (spec.MEAN, spec.SCALE))
    smoothing, rate = job.number("smoothing"), job.number("dropout")
    momentum, decay = job.number("momentum"), job.number("weight_decay")

    def forward(weights: Weights, statistics: Weights, images: Any, key: Any) -> tuple[Any, Weights]:
        model = Model(weights, statistics, key, training, rate)
        logits = network(model, ((images.astype(jnp.float32) / 255 - mean) / scale).astype(dtype))
        return logits.astype(jnp.float32), model.seen

    def loss_of(weights: Weights, statistics: Weights, batch: Batch, key: Any) -> tuple[Any, Weights]:
        logits, seen = forward(weights, statistics, batch["images"], key)
        wanted = jax.nn.one_hot(batch["labels"], logits.shape[1]) * (1 - smoothing)
        wanted = wanted + smoothing / logits.shape[1]
        return -jnp.mean(jnp.sum(wanted * jax.nn.log_softmax(logits), axis=1)), seen

    def train(weights: Weights, carried: Any, batch: Batch) -> Any:
        statistics, velocities, key = carried
        key, used = jax.random.split(key)
        gradient_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, seen), gradients = gradient_of(weights, statistics, batch, used)
        statistics = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, statistics, seen)

        def faster(velocity: Any, slope: Any, weight: Any) -> Any:  # no decay of biases and normalisations
            return momentum * velocity + slope + (decay * weight if weight.ndim > 1 else 0)

        velocities = jax.tree.map(faster, velocities, gradients, weights)
        weights = jax.tree.map(lambda weight, velocity: weight - 1e-3 * velocity, weights, velocities)
        return weights, (statistics, velocities, key), loss

    def infer(weights: Weights, carried: Any, batch: Batch) -> Any:
        return carried, forward(weights, carried[0], batch["images"], carried[1])[0]

    if training:
        velocities = jax.tree.map(jnp.zeros_like, weights)
        return plain(weights, (statistics, velocities, jax.random.key(2)), train, job)
    stored = {name: weight.astype(dtype) if weight.ndim > 1 else weight for name, weight in weights.items()}
    return plain(stored, (statistics, jax.random.key(2)), infer, job)
