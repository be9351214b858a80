"""Skip-gram with negative sampling as a user would write it in JAX.

The gradient is taken with respect to the rows that a batch names, because JAX has no sparse gradients; the
rows are then added to the tables.

Differences to the suite: the pairs of a batch are listed one by one, as in tutorials, and a row that many
pairs use moves by their sum, without the suite's bound. The list is made once: batches must be synthetic.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from peers.jax_common import Batch, Weights, cast, plain, start
from peers.plain import Plain
from suite import workloads
from suite.contract import Job
from suite.workloads.word2vec import spec


def pairs(batch: Any) -> Batch:
    """Contexts [P] and targets [P, 1 + K] of every pair of a batch, and which targets count [P, 1 + K]."""
    centre, offset = np.nonzero(batch["contexts"])
    found = batch["words"][centre + offset], batch["targets"][centre], batch["live"][centre]
    return {name: jnp.asarray(one) for name, one in zip(("contexts", "targets", "live"), found, strict=True)}


def unit(rows: Any) -> Any:
    """``rows`` at length one."""
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def make(job: Job) -> Plain:
    """Training, or the nearest words of a batch of queries."""
    dtype = start(job)
    dims = spec.dimensions(job.key.scale, job.key.variant)
    shape, limit = (dims.vocabulary, dims.width), 0.5 / dims.width
    table = jax.random.uniform(jax.random.key(1), shape, minval=-limit, maxval=limit)
    weights = {"input": table, "output": jnp.zeros(shape)}

    def loss_of(rows: Any, listed: Batch) -> Any:
        contexts, targets = rows
        logits = jnp.einsum("pd,pkd->pk", contexts.astype(dtype), targets.astype(dtype)).astype(jnp.float32)
        signs = jnp.where(jnp.arange(logits.shape[1]) == 0, -1.0, 1.0)  # the first target is the true one
        return jnp.sum(jax.nn.softplus(signs * logits) * listed["live"])

    def train(weights: Weights, listed: Batch, batch: Batch) -> Any:
        del batch
        contexts, targets = listed["contexts"], listed["targets"]
        rows = weights["input"][contexts], weights["output"][targets]
        loss, (to_input, to_output) = jax.value_and_grad(loss_of)(rows, listed)
        weights = {
            "input": weights["input"].at[contexts].add(-0.025 * to_input),
            "output": weights["output"].at[targets].add(-0.025 * to_output),
        }
        return weights, listed, loss / len(contexts)

    def infer(weights: Weights, carried: Any, batch: Batch) -> Any:
        queries = batch["queries"]
        similar = weights["input"][queries] @ weights["input"].T
        similar = similar.at[jnp.arange(len(queries)), queries].set(-1).astype(jnp.float32)
        cosines, words = lax.top_k(similar, spec.NEIGHBOURS)
        return carried, jnp.stack((words.astype(jnp.float32), cosines), axis=1)

    if job.key.phase == "train":
        return plain(weights, pairs(workloads.open_data(job).batch(0)), train, job)
    return plain(cast(weights | {"input": unit(table)}, dtype), (), infer, job)
