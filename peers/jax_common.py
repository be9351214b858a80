"""Shared code of the plain JAX scripts: device, batches, precision, optimisers, one compiled step.

Models are pure functions of a dictionary of arrays; JAX alone is needed, without a library on top of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from peers.plain import Plain
from suite import workloads
from suite.contract import STEPS, Job

Batch = dict[str, Any]
Weights = dict[str, Any]
_PRODUCTS = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}


def start(job: Job) -> Any:
    """Set threads, device and the precision of float32 products; returns the type of activations."""
    os.environ.setdefault("NPROC", str(job.threads))  # the size of the CPU's thread pool
    on_gpu = job.device.startswith("cuda")
    jax.config.update("jax_platforms", "cuda,cpu" if on_gpu else "cpu")
    jax.config.update("jax_default_matmul_precision", _PRODUCTS[job.key.precision])
    devices = jax.devices("cuda" if on_gpu else "cpu")
    jax.config.update("jax_default_device", devices[job.device_index])
    return jnp.bfloat16 if job.key.precision == "bf16" else jnp.float32


def staged(job: Job) -> Callable[[int], Batch]:
    """The suite's batches on the device: synthetic ones are copied there once."""
    data = workloads.open_data(job)
    cached: dict[int | None, Batch] = {}

    def batch(step: int) -> Batch:
        slot = data.slot(step)
        if slot is None or slot not in cached:
            cached[slot] = {name: jnp.asarray(array) for name, array in data.batch(step).items()}
        return cached[slot]

    for step in range(STEPS):
        if data.slot(step) is not None:
            batch(step)
    return batch


def cast(weights: Weights, dtype: Any) -> Weights:
    """Copies of the float32 masters in the type of the activations."""
    return {name: weight.astype(dtype) for name, weight in weights.items()}


def uniform(shapes: dict[str, tuple[int, ...]], spread: float) -> Weights:
    """Weights between ``-spread`` and ``spread``."""
    keys = jax.random.split(jax.random.key(1), len(shapes))
    return {
        name: jax.random.uniform(key, shape, minval=-spread, maxval=spread)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def dropout(key: Any, rate: float, inputs: Any) -> Any:
    """Inverted dropout; none at a rate of 0."""
    if not rate:
        return inputs
    return jnp.where(jax.random.bernoulli(key, 1 - rate, inputs.shape), inputs / (1 - rate), 0)


def clipped(gradients: Any, limit: float) -> Any:
    """``gradients`` with a global norm of at most ``limit``."""
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in jax.tree.leaves(gradients)))
    scale = jnp.minimum(1.0, limit / norm)
    return jax.tree.map(lambda gradient: gradient * scale, gradients)


def adam_start(weights: Weights) -> Any:
    """Adam's state: the number of updates and both moments."""
    zeros = [{name: jnp.zeros_like(weight) for name, weight in weights.items()} for _ in range(2)]
    return (jnp.zeros(()), *zeros)


def adam(weights: Weights, gradients: Weights, state: Any, rate: float) -> tuple[Weights, Any]:
    """``weights`` and ``state`` after one update by Adam."""
    count, means, squares = state
    count = count + 1
    means = jax.tree.map(lambda mean, slope: 0.9 * mean + 0.1 * slope, means, gradients)
    squares = jax.tree.map(lambda square, slope: 0.999 * square + 0.001 * slope**2, squares, gradients)
    mean_scale, square_scale = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)

    def moved(weight: Any, mean: Any, square: Any) -> Any:
        return weight - rate * (mean * mean_scale) / (jnp.sqrt(square * square_scale) + 1e-8)

    return jax.tree.map(moved, weights, means, squares), (count, means, squares)


def plain(weights: Weights, carried: Any, step: Callable[..., Any], job: Job) -> Plain:
    """The script for the timing loop.

    Training compiles ``step(weights, carried, batch) -> (weights, carried, loss)`` and donates the first two;
    inference ``step(weights, carried, batch) -> (carried, outputs)`` and donates ``carried``.
    """
    batch_of, training = staged(job), job.key.phase == "train"
    compiled = jax.jit(step, donate_argnums=(0, 1) if training else 1)
    held: list[Any] = [weights, carried, None]

    def run(index: int) -> Any:
        found = compiled(held[0], held[1], batch_of(index))
        held[:] = found if training else (held[0], *found)
        held[2].copy_to_host_async()
        return held[2]

    return Plain(
        step=run,
        fetch=lambda output: jax.device_get(output).astype("float32"),
        synchronize=lambda: jax.block_until_ready(held),
        parameters=sum(weight.size for weight in weights.values()),
    )
