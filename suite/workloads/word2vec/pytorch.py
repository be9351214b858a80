"""Skip-gram with negative sampling in PyTorch, with explicit gradients: plain operators, Triton on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from suite.frameworks.base import Arrays
from suite.frameworks.pytorch.framework import Batch
from suite.frameworks.pytorch.optimisers import Descent
from suite.frameworks.pytorch.pair import BasePair
from suite.workloads.word2vec import pytorch_ops as ops
from suite.workloads.word2vec import spec


class Pair(BasePair):
    """Both tables. Gradient and update are fused, because only the rows that a batch names have gradients.

    The pair therefore overrides ``update`` and ``gradients`` and has no loss to differentiate.
    """

    optimiser: Descent  # holds the rate
    compiled = ("infer",)
    _kernels: Any = None  # the module, if they are used

    def build(self) -> None:
        """Choose Triton's kernels for the fast path on a GPU: their atomic additions have no fixed order."""
        if self.framework.cuda and self.job.fast:
            self.use_kernels()

    def use_kernels(self) -> None:
        """Compute training steps by Triton's kernels, on a GPU or in its interpreter."""
        from suite.workloads.word2vec import pytorch_kernels  # imports Triton, which only CUDA builds have

        self._kernels = pytorch_kernels

    def inference_weights(self) -> dict[str, Tensor]:
        """The input table with its rows normalised to length one; for a GPU, zeros behind it fill a group."""
        unit = F.normalize(self.masters["input"])
        if self.framework.cuda:
            unit = F.pad(unit, (0, 0, 0, -len(unit) % ops.GROUP))
        return {"input": unit.to(self.framework.compute_dtype)}

    def observe(self) -> None:
        """Note the type of one row."""
        one = torch.zeros(1, dtype=torch.int32, device=self.framework.device)
        found = ops.rows(self.masters["input"], one, self.framework.compute_dtype)
        self.framework.observed.note(activations=found)

    def _tables(self) -> tuple[Tensor, Tensor]:
        return self.masters["input"], self.masters["output"]

    def _differentiate(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, and the gradients of the rows that the batch names, by plain operators."""
        ids = batch["words"], batch["targets"]
        dtype = self.framework.compute_dtype
        return ops.gradients(self._tables(), *ids, batch["contexts"], batch["live"], dtype)

    def _differentiate_by_kernels(self, batch: Batch) -> Any:
        """As :meth:`_differentiate`, by the kernels."""
        return self._kernels.differentiate(self._tables(), batch, self.framework.compute_dtype)

    def _descend(self, batch: Batch, changed: Sequence[Tensor], rate: Tensor) -> tuple[Tensor, Tensor]:
        """Add -``rate`` * share * gradient to the rows of ``changed``, the tables or sums of their shape.

        Returns the loss and the number of pairs of words, [2], and gradients of rows of the input table.
        """
        if self._kernels is not None:
            found = self._differentiate_by_kernels(batch)
            self._kernels.descend(changed, found, batch, rate)
            return found.totals.sum(dim=1), found.by_context
        losses, by_word, by_target = self._differentiate(batch)
        by_word *= (batch["word_share"] * -rate).unsqueeze(1)
        by_target *= (batch["target_share"] * -rate).unsqueeze(2)
        for table, name, part in zip(changed, ("words", "targets"), (by_word, by_target), strict=True):
            table.index_add_(0, batch[name].view(-1), part.flatten(0, -2))
        return torch.stack((losses.sum(), batch["contexts"].sum())), by_word

    @torch.no_grad()
    def update(self, batch: Batch) -> Tensor:
        """Gradient descent on the rows that the batch names; returns the mean loss of a pair of words.

        With several ranks the loss is the rank's share of the global batch's mean, and the ranks exchange the
        sums of their rows as whole tables: adding up rows on a GPU has no fixed order, so that ranks which
        add the rows of all ranks on their own would differ in the last bits.
        """
        exchange = self.framework.exchange
        tables = self._tables()
        changes = [torch.zeros_like(table) for table in tables] if exchange.active else tables
        sums, gradient = self._descend(batch, changes, self.optimiser.rate)
        if exchange.active:
            exchange.record_arrival()
            for table, changed in zip(tables, exchange.totals(changes), strict=True):
                table += changed
        self.framework.observed.note(weights=self.masters["input"], gradients=gradient)
        loss = sums[0] / exchange.total(sums[1])
        return loss if self.job.replicas == 1 else loss / self.job.replicas  # a launch is 3 % of a step

    @torch.no_grad()
    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index``, summed over all ranks, by canonical name, dense."""
        batch = self.framework.feed(self.data, index)
        shares = {name: torch.ones_like(batch[name]) for name in ("word_share", "target_share")}
        dense = {name: torch.zeros_like(table) for name, table in self.masters.items()}
        self._descend({**batch, **shares}, list(dense.values()), torch.full_like(self.optimiser.rate, -1))
        total = self.framework.exchange.total
        return {name: self.framework.array(total(table)) for name, table in dense.items()}

    def infer(self, batch: Batch) -> Tensor:
        """Nearest words [batch, 2, 10] (ids, cosines) of ``queries``."""
        return self._nearest(self.stored["input"], batch["queries"])

    def _nearest(self, unit: Tensor, queries: Tensor) -> Tensor:
        similar = torch.mm(unit.index_select(0, queries), unit.t())
        if self.framework.cuda:
            cosines, words = ops.largest(similar, queries, self.dims.vocabulary)
        else:
            similar.scatter_(1, queries.long().unsqueeze(1), -2)  # a word is not its own neighbour
            cosines, words = similar.topk(spec.NEIGHBOURS)
        cosines = cosines.to(self.framework.dtype)
        return torch.stack((words.to(cosines.dtype), cosines), dim=1)

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """The loss of each pair of batch ``index``, [C, 2W + 1]; zero where there is no pair."""
        batch = self.framework.feed(self.data, index)
        found = self._differentiate(batch) if self._kernels is None else self._differentiate_by_kernels(batch)
        return self.framework.array(found[0])

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """Normalised rows of the input table for ``words`` [n]: ``vectors`` float32 [n, D]."""
        chosen = self.masters["input"].index_select(0, self.framework.tensor(arrays["words"]))
        return {"vectors": self.framework.array(F.normalize(chosen)).astype(np.float32)}
