"""Skip-gram with negative sampling in PyTorch, its gradients written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from suite.frameworks.pytorch import Batch, Framework
from suite.workloads import weights
from suite.workloads.contract import Data, Job
from suite.workloads.word2vec import spec

Arrays = dict[str, NDArray[Any]]


def errors(scores: Tensor, contexts: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each context, [C, 2W + 1], and the derivative by each score, [C, 1 + K, 2W + 1].

    ``scores`` [C, 1 + K, 2W + 1]; the first target of each centre is the true one.
    """
    weight = live.unsqueeze(2) * contexts.unsqueeze(1)
    chance = torch.sigmoid(scores)
    chance = torch.where(scores.abs() > spec.SATURATION, (scores > 0).to(chance.dtype), chance)
    chance[:, 0] -= 1
    losses = F.softplus(scores)
    losses[:, 0] -= scores[:, 0]  # softplus(-x) is softplus(x) - x
    return (losses * weight).sum(dim=1), chance * weight


def rows(table: Tensor, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows ``ids`` [...] of ``table`` [V, D] in the type that products are computed in: [..., D]."""
    return F.embedding(ids, table).to(dtype)


def gradients(
    tables: tuple[Tensor, Tensor],
    words: Tensor,
    targets: Tensor,
    contexts: Tensor,
    live: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [C, 2W + 1], and the gradient of their sum by the rows that are named, one for each naming.

    ``words`` [C + 2W] are ids of the first table, ``targets`` [C, 1 + K] of the second; the gradients, in the
    type of the tables, are [C + 2W, D] and [C, 1 + K, D]. Products are in ``dtype``.
    """
    full, span = contexts.dtype, contexts.shape[1]
    held = rows(tables[1], targets, dtype)
    windows = rows(tables[0], words, dtype).unfold(0, span, 1)  # [C, D, 2W + 1], a view
    losses, error = errors(torch.bmm(held, windows).to(full), contexts, live)
    error = error.to(dtype)
    by_target = torch.bmm(error, windows.transpose(1, 2)).to(full)
    by_context = torch.bmm(error.transpose(1, 2), held).to(full)
    by_word = by_context.new_zeros(len(words), by_context.shape[2])
    for place in range(span):
        by_word[place : place + len(by_context)] += by_context[:, place]
    return losses, by_word, by_target


class Pair:
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self._job, self._framework, self._data = job, framework, data
        self._dims = spec.dimensions(job.key.scale, job.key.variant)
        self._specified = spec.parameters(self._dims)
        self._weights: dict[str, Tensor] = {}
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name] = framework.tensor(value)
        one = torch.zeros(1, dtype=torch.int32, device=framework.device)
        framework.observed.note(activations=rows(self._weights["input"], one, framework.compute_dtype))
        self._results = framework.results()
        self._gradients = framework.compile(gradients)
        self._neighbours = framework.compile(self._nearest)
        if job.key.phase == "train":
            self._rate = torch.zeros((), dtype=framework.dtype, device=framework.device)
            self._fast = framework.make_fast(self._update, list(self._weights.values()))
        else:
            # Weights may be stored in the type of inference; a quality run scores with the master weights.
            self._unit = F.normalize(self._weights["input"]).to(framework.compute_dtype)
            self._fast = framework.make_fast(self._infer)

    def _differentiate(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, and the gradients by the rows that the batch names."""
        tables = self._weights["input"], self._weights["output"]
        arrays = (batch[name] for name in ("words", "targets", "contexts", "live"))
        losses, by_word, by_target = self._gradients(tables, *arrays, self._framework.compute_dtype)
        return losses, by_word, by_target

    def _update(self, batch: Batch) -> Tensor:
        losses, by_word, by_target = self._differentiate(batch)
        by_word *= (batch["word_share"] * -self._rate).unsqueeze(1)
        by_target *= (batch["target_share"] * -self._rate).unsqueeze(2)
        self._weights["input"].index_add_(0, batch["words"], by_word)
        self._weights["output"].index_add_(0, batch["targets"].view(-1), by_target.flatten(0, 1))
        self._framework.observed.note(weights=self._weights["input"], gradients=by_word)
        return losses.sum() / batch["contexts"].sum()

    def _nearest(self, unit: Tensor, queries: Tensor) -> Tensor:
        similar = torch.mm(unit.index_select(0, queries), unit.t()).to(self._framework.dtype)
        similar.scatter_(1, queries.long().unsqueeze(1), -2)  # a word is no neighbour of its own
        cosines, words = similar.topk(spec.NEIGHBOURS)
        return torch.stack((words.to(cosines.dtype), cosines), dim=1)

    def _infer(self, batch: Batch) -> Tensor:
        found: Tensor = self._neighbours(self._unit, batch["queries"])
        self._framework.observed.note(weights=self._unit)
        return found

    def step(self, index: int) -> None:
        """One update, or the nearest words [batch, 2, 10] (ids, cosines) of a batch, kept on the device."""
        batch = self._framework.feed(self._data, index)
        if self._job.key.phase == "train":
            self._rate.fill_(spec.rate_of(self._job, index))
        self._results.keep(self._fast(batch, self._data.slot(index)))

    def reset(self) -> None:
        """Initial weights, in place."""
        for name, value in weights.initial(spec.NAME, self._specified):
            self._weights[name].copy_(self._framework.tensor(value))

    def collect(self) -> list[NDArray[Any]]:
        """Mean losses of a pair (scalars), or nearest words, since the last call."""
        return self._results.collect()

    def parameters(self) -> Arrays:
        """Both tables by canonical name."""
        return {name: self._framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """Gradient of the summed loss of batch ``index`` by canonical name, dense."""
        batch = self._framework.feed(self._data, index)
        _, *parts = self._differentiate(batch)
        found = {}
        for name, ids, gradient in zip(self._weights, ("words", "targets"), parts, strict=True):
            table = torch.zeros_like(self._weights[name])
            table.index_add_(0, batch[ids].view(-1), gradient.flatten(0, -2))
            found[name] = self._framework.array(table)
        return found

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Loss of each pair of batch ``index``, [C, 2W + 1]; zero where there is none."""
        return self._framework.array(self._differentiate(self._framework.feed(self._data, index))[0])

    def predict(self, arrays: Arrays) -> Arrays:
        """Rows of the input table for ``words`` [n], of length one: ``vectors`` float32 [n, D]."""
        chosen = self._weights["input"].index_select(0, self._framework.tensor(arrays["words"]))
        return {"vectors": self._framework.array(F.normalize(chosen)).astype(np.float32)}
