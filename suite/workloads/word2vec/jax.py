"""Skip-gram with negative sampling in JAX, with explicit gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.jax.exchange import SHARED, SPLIT
from suite.frameworks.jax.framework import Batch, State, Tensor, Tensors
from suite.frameworks.jax.pair import BasePair, Inputs, Weights
from suite.workloads.word2vec import spec


def errors(scores: Tensor, contexts: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each context [C, 2W + 1], and the derivative with respect to each score.

    ``scores`` [C, 1 + K, 2W + 1]; the first target of each centre is the true one.
    """
    weight = live[:, :, None] * contexts[:, None, :]
    sure = (scores > 0).astype(scores.dtype)
    chance = jnp.where(jnp.abs(scores) > spec.SATURATION, sure, jax.nn.sigmoid(scores))
    true = jax.nn.one_hot(0, scores.shape[1], dtype=scores.dtype)[None, :, None]
    losses = jax.nn.softplus(scores) - true * scores  # softplus(-x) is softplus(x) - x
    return jnp.sum(losses * weight, axis=1), (chance - true) * weight


def gradients(
    words: Tensor, targets: Tensor, contexts: Tensor, live: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [C, 2W + 1], and the gradients of their sum with respect to the rows ``words`` and ``targets``.

    ``words`` [C + 2W, D] and ``targets`` [C, 1 + K, D] are rows of the tables, in the compute type.
    """
    (count, span), full = contexts.shape, contexts.dtype
    windows = jnp.stack([words[offset : offset + count] for offset in range(span)], axis=1)
    scores = jnp.einsum("ckd,csd->cks", targets, windows).astype(full)
    losses, error = errors(scores, contexts, live)
    error = error.astype(words.dtype)
    by_target = jnp.einsum("cks,csd->ckd", error, windows).astype(full)
    by_context = jnp.einsum("cks,ckd->csd", error, targets).astype(full)
    shifted = [jnp.pad(by_context[:, at], ((at, span - 1 - at), (0, 0))) for at in range(span)]
    return losses, sum(shifted), by_target


class Pair(BasePair):
    """Both tables. Gradient and update are explicit, because only the rows that a batch names have gradients.

    The pair therefore overrides ``differentiate``, ``apply`` and ``exchanged`` and has no loss to
    differentiate. With several ranks they exchange the sums of their rows as whole tables: adding up rows on
    a GPU has no fixed order, so that ranks which add the rows of all ranks on their own would differ in the
    last bits.
    """

    def build(self) -> None:
        """Make the functions beside the step; evaluations use the master weights in every precision."""
        fast = self.framework.make_fast
        self._losses = fast(
            lambda weights, batch: self._by_rows((weights["input"], weights["output"]), batch)[0]
        )
        self._rows = fast(lambda weights, words: _unit(weights["input"][words]))
        self._tables = fast(self.framework.exchange.parallel(self._summed, (SHARED, SPLIT), SHARED))

    def inference_weights(self) -> Weights:
        """The input table with its rows normalised to length one."""
        return {"unit": self.framework.compute(_unit(self.masters["input"]))}

    def _by_rows(self, tables: Tensors, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, and the gradients of the rows that the batch names."""
        words = self.framework.compute(tables[0][batch["words"]])
        targets = self.framework.compute(tables[1][batch["targets"]])
        self.framework.observed.note(activations=words)
        return gradients(words, targets, batch["contexts"], batch["live"])

    def differentiate(
        self, carried: State, trained: Tensors, frozen: Weights, state: State, batch: Batch, key: Tensor
    ) -> tuple[Tensor, Any, State]:
        """The sum of the losses [1], and of each table the rows' gradients times their shares.

        With an active exchange the sums of these rows as tables.
        """
        del carried, frozen, key
        losses, by_word, by_target = self._by_rows(trained, batch)
        rows = [by_word * batch["word_share"][:, None], by_target * batch["target_share"][:, :, None]]
        self.framework.observed.note(weights=trained[0], gradients=by_word)
        parts = _as_tables(trained, batch, rows) if self.framework.exchange.active else rows
        return jnp.sum(losses)[None], [part[None] for part in parts], state

    def apply(
        self, carried: State, trained: Tensors, loss: Tensor, gradients: Any, batch: Batch, rate: Tensor
    ) -> tuple[State, list[Tensor], Tensor]:
        """Gradient descent on the rows that the batch names; the result is the mean loss of a pair of words.

        With several ranks it is the rank's share of the global batch's mean.
        """
        exchange, pairs = self.framework.exchange, jnp.sum(batch["contexts"])
        changes = [-rate * part[0] for part in gradients]
        if exchange.active:
            *changes, pairs = exchange.total([*changes, pairs])
            moved = [table + change for table, change in zip(trained, changes, strict=True)]
        else:
            moved = _added(trained, batch, changes)
        return carried, moved, loss / pairs / self.job.replicas

    def _summed(self, trained: Tensors, batch: Batch) -> list[Tensor]:
        """The dense gradient of each table, summed over all ranks."""
        _, *rows = self._by_rows(trained, batch)
        return self.framework.exchange.total(_as_tables(trained, batch, rows))

    def gradients(self, index: int) -> Arrays:
        """Gradient of the summed losses of batch ``index`` by canonical name."""
        trained, _, _, batch, _ = self._read(self.framework.feed(self.data, index))
        return self.by_name(self._tables(trained, batch))

    def infer(self, inputs: Inputs) -> Tensor:
        """Nearest words [batch, 2, 10] (ids, cosines) of ``queries``."""
        unit, queries = inputs.weights["unit"], inputs.batch["queries"]
        rows = unit[queries]
        similar = jnp.matmul(rows, unit.T, preferred_element_type=self.framework.dtype)
        others = similar.at[jnp.arange(len(queries)), queries].set(-2)  # no word is its own neighbour
        cosines, words = lax.top_k(others, spec.NEIGHBOURS)
        self.framework.observed.note(activations=rows)
        return jnp.stack((words.astype(cosines.dtype), cosines), axis=1)

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """The loss of each pair of batch ``index``, [C, 2W + 1]; zero where there is no pair."""
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._losses(self.local_masters(), batch))

    def predict(self, arrays: Arrays) -> Arrays:
        """Normalised rows of the input table for ``words`` [n]: ``vectors`` float32 [n, D]."""
        vectors = self._rows(self.local_masters(), self.framework.tensor(arrays["words"]))
        return {"vectors": self.framework.array(vectors).astype(np.float32)}


def _added(tables: Tensors, batch: Batch, rows: Tensors) -> list[Tensor]:
    """``tables`` with ``rows`` added at the ids of ``words`` and of ``targets``."""
    parts = zip(tables, ("words", "targets"), rows, strict=True)
    return [table.at[batch[ids]].add(part) for table, ids, part in parts]


def _as_tables(tables: Tensors, batch: Batch, rows: Tensors) -> list[Tensor]:
    """The sums of ``rows`` by id, in the shapes of ``tables``."""
    return _added([jnp.zeros_like(table) for table in tables], batch, rows)


def _unit(rows: Tensor) -> Tensor:
    """``rows`` [n, D] at length one."""
    squares = jnp.sum(rows * rows, axis=1, keepdims=True)
    return rows * lax.rsqrt(jnp.maximum(squares, 1e-24))
