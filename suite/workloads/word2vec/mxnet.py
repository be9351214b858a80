"""Skip-gram with negative sampling in MXNet Gluon, hybridized, with explicit gradients."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.mxnet.framework import Batch, Descent, Tensor
from suite.frameworks.mxnet.pair import BasePair
from suite.workloads.word2vec import spec


class Gradients(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """Losses [C, 2W + 1], and the gradients of their sum with respect to the rows ``words`` and ``targets``.

    ``words`` [C + 2W, D] and ``targets`` [C, 1 + K, D] are rows of the tables. The first target of each
    centre is the true one.
    """

    def __init__(self, dims: spec.Dimensions, capacity: int, dtype: str) -> None:
        super().__init__(prefix="")
        self._dims, self._capacity, self._dtype = dims, capacity, dtype

    def hybrid_forward(self, F: Any, words: Tensor, targets: Tensor, contexts: Tensor, live: Tensor) -> Any:
        """See the class."""
        span, size = self._dims.span, self._capacity
        shifted = [F.slice_axis(words, axis=0, begin=at, end=at + size) for at in range(span)]
        windows = F.stack(*shifted, axis=1)
        losses, error = self._errors(F, F.batch_dot(targets, windows, transpose_b=True), contexts, live)
        by_target = F.batch_dot(error, windows)
        by_context = F.batch_dot(error, targets, transpose_a=True)
        by_word = [self._placed(F, by_context, at) for at in range(span)]
        return losses, F.add_n(*by_word), by_target

    def _errors(self, F: Any, scores: Tensor, contexts: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each context, and the derivative with respect to each score [C, 1 + K, 2W + 1]."""
        weight = F.broadcast_mul(F.expand_dims(live, 2), F.expand_dims(contexts, 1))
        chance = F.where(F.abs(scores) > spec.SATURATION, scores > 0, F.sigmoid(scores))
        true = F.one_hot(F.zeros((1,)), self._dims.targets, dtype=self._dtype)
        true = F.expand_dims(true, 2)
        # softplus(x), minus x for the true target; Gluon's softplus loses float64 precision
        softplus = F.relu(scores) + F.log1p(F.exp(-F.abs(scores)))
        losses = softplus - F.broadcast_mul(scores, true)
        return F.sum(losses * weight, axis=1), F.broadcast_sub(chance, true) * weight

    def _placed(self, F: Any, by_context: Tensor, at: int) -> Tensor:
        """The gradients of position ``at`` of all windows, in the rows of the words: [C + 2W, D]."""
        part = F.slice_axis(by_context, axis=1, begin=at, end=at + 1)
        part = F.reshape(part, shape=(1, 1, self._capacity, self._dims.width))  # Pad requires four axes
        edges = (0, 0, 0, 0, at, self._dims.span - 1 - at, 0, 0)
        padded = F.Pad(part, mode="constant", pad_width=edges)
        return F.reshape(padded, shape=(-1, self._dims.width))


class Nearest(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """The nearest words [n, 2, 10] (ids, cosines) of ``queries`` [n] among the rows ``unit`` [V, D]."""

    def __init__(self, dims: spec.Dimensions, dtype: str) -> None:
        super().__init__(prefix="")
        self._dims, self._dtype = dims, dtype

    def hybrid_forward(self, F: Any, queries: Tensor, unit: Tensor) -> Tensor:
        """See the class."""
        similar = F.dot(F.take(unit, queries), unit, transpose_b=True)
        itself = F.one_hot(queries, self._dims.vocabulary, dtype=self._dtype)
        similar = similar - 3 * itself  # a word is not its own neighbour
        best = F.topk(similar, k=spec.NEIGHBOURS, ret_typ="both", dtype=self._dtype)
        return F.stack(best[1], best[0], axis=1)


class Pair(BasePair):
    """Both tables. Gradient and update are fused, because only the rows that a batch names have gradients.

    The pair therefore overrides ``update`` and ``gradients`` and has no loss to differentiate.
    """

    dense_gradients = False
    optimiser: Descent  # holds the rate

    def build(self) -> None:
        """Make the blocks for gradients and for nearest words."""
        capacity, dtype = spec.capacity(self.job.key.batch), self.framework.dtype
        self._by_row = self.framework.make_fast(Gradients(self.dims, capacity, dtype))
        self._nearest = self.framework.make_fast(Nearest(self.dims, dtype))

    def inference_weights(self) -> dict[str, Tensor]:
        """The input table with its rows normalised to length one."""
        return {"input": self._normalised(self.masters["input"])}

    def _normalised(self, rows: Tensor) -> Tensor:
        return mx.nd.broadcast_div(rows, mx.nd.norm(rows, axis=1, keepdims=True))

    def _differentiate(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, and the gradients of the rows that the batch names."""
        words = mx.nd.take(self.masters["input"], batch["words"])
        targets = mx.nd.take(self.masters["output"], batch["targets"])
        losses, by_word, by_target = self._by_row(words, targets, batch["contexts"], batch["live"])
        self._note(self.masters, losses)
        self.framework.observed.note(gradients=by_word)
        return losses, by_word, by_target

    def _summed_by_id(self, ids: Tensor, factors: Tensor, rows: Tensor) -> Tensor:
        """``factors`` times ``rows``, summed by id, as a row-sparse table.

        A product with a sparse matrix with one number per row: MXNet has no other sum over ids in both types.
        """
        flat, count = rows.reshape(-1, self.dims.width), ids.size
        starts = mx.nd.arange(count + 1, ctx=ids.context, dtype="int64")
        parts = (factors.reshape(-1), ids.reshape(-1).astype("int64"), starts)
        shape = (count, self.dims.vocabulary)
        matrix = mx.nd.sparse.csr_matrix(parts, shape=shape, ctx=ids.context, dtype=self.framework.dtype)
        return mx.nd.sparse.dot(matrix, flat, transpose_a=True)

    def update(self, batch: Batch) -> Tensor:
        """Gradient descent on the rows that the batch names; returns the mean loss of a pair of words.

        With several ranks the loss is the rank's share of the global batch's mean, and the ranks exchange the
        sums of their rows as whole tables.
        """
        losses, *rows = self._differentiate(batch)
        names = (("input", "words", "word_share"), ("output", "targets", "target_share"))
        changes = {
            name: self._summed_by_id(batch[ids], self.optimiser.rate * batch[share], gradient)
            for (name, ids, share), gradient in zip(names, rows, strict=True)
        }
        changes["contexts"] = batch["contexts"].sum()
        changes = self.framework.exchange.totals(changes)
        for name, weight in self.masters.items():  # the operator's lr is a float32
            mx.nd.sparse.sgd_update(weight, changes[name], out=weight, lr=1.0, wd=0.0)
        return losses.sum() / changes["contexts"] / self.job.replicas

    def infer(self, batch: Batch) -> Tensor:
        """Nearest words [batch, 2, 10] (ids, cosines) of ``queries``."""
        return self._nearest(batch["queries"], self.stored["input"])

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index``, summed over all ranks, by canonical name, dense."""
        batch = self.framework.feed(self.data, index)
        _, *rows = self._differentiate(batch)
        dense = {}
        for name, ids, gradient in zip(self.masters, ("words", "targets"), rows, strict=True):
            ones = mx.nd.ones(batch[ids].shape, ctx=gradient.context, dtype=gradient.dtype)
            table = self._summed_by_id(batch[ids], ones, gradient).tostype("default")
            dense[name] = self.framework.array(self.framework.exchange.total(name, table))
        return dense

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """The loss of each pair of batch ``index``, [C, 2W + 1]; zero where there is no pair."""
        return self.framework.array(self._differentiate(self.framework.feed(self.data, index))[0])

    def predict(self, arrays: Arrays) -> Arrays:
        """Normalised rows of the input table for ``words`` [n]: ``vectors`` float32 [n, D]."""
        rows = mx.nd.take(self.masters["input"], self.framework.tensor(arrays["words"]))
        return {"vectors": self.framework.array(self._normalised(rows)).astype(np.float32)}
