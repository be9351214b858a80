"""NeuMF in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from suite.frameworks.base import Arrays
from suite.frameworks.pytorch.framework import Batch
from suite.frameworks.pytorch.pair import BasePair

FUSED_INFERENCE = 32_768  # samples of a batch from which inference uses the kernel: 128 blocks of 256


def logits(weight: Mapping[str, Tensor], users: Tensor, items: Tensor, layers: int) -> Tensor:
    """Scores before the sigmoid, [n], for users [n] and items [n]."""
    product = F.embedding(users, weight["mf.user"]) * F.embedding(items, weight["mf.item"])
    halves = F.embedding(users, weight["mlp.user"]), F.embedding(items, weight["mlp.item"])
    hidden = torch.cat(halves, dim=1)
    for layer in range(1, layers + 1):
        hidden = F.relu(F.linear(hidden, weight[f"mlp.{layer}.weight"], weight[f"mlp.{layer}.bias"]))
    joined = torch.cat((product.to(hidden.dtype), hidden), dim=1)
    return F.linear(joined, weight["output.weight"], weight["output.bias"]).squeeze(1)


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean over the samples, in the type of the labels."""
    return F.binary_cross_entropy_with_logits(scores.to(labels.dtype), labels)


class Pair(BasePair):
    """NeuMF. Inference returns scores (sigmoid) [batch]. ``fused``: Triton's kernels compute them."""

    def build(self) -> None:
        """Choose Triton's kernels on the fast path of a GPU; in training their sums have no fixed order."""
        framework = self.framework
        kinds = [torch.bfloat16, torch.float16]
        if self.training:
            kinds.append(torch.float64)  # in which the kernels can be checked
            usable = not self.job.deterministic
        else:  # compiled operators take less time for a batch that leaves most of the GPU idle
            usable = self.job.key.batch >= FUSED_INFERENCE
        usable &= framework.cuda and framework.fast and framework.compute_dtype in kinds
        self.fused = usable and len(self.dims.layers) == 4
        if self.fused:
            self.compiled = ()  # of the loss only the cross entropy
        self._cross_entropy = framework.compile(cross_entropy) if self.fused else cross_entropy

    def loss(self, batch: Batch) -> Tensor:
        """Binary cross entropy, the mean over the samples of the batch."""
        return self._cross_entropy(self._scores(batch), batch["labels"])

    def _scores(self, batch: Batch) -> Tensor:
        """Scores before the sigmoid [batch], for training."""
        if not self.fused:
            return self._logits(self.masters, batch["users"], batch["items"])
        from suite.workloads.ncf import pytorch_kernels  # imports Triton, which only CUDA builds have

        weights = tuple(self.masters.values())
        return pytorch_kernels.scores(batch["users"], batch["items"], weights, self.framework.compute_dtype)

    def infer(self, batch: Batch) -> Tensor:
        """Scores (sigmoid) [batch]."""
        if self.fused:
            from suite.workloads.ncf import pytorch_kernels

            weights = tuple(self.stored.values())
            return pytorch_kernels.sigmoids(batch["users"], batch["items"], weights, self.framework.dtype)
        scores = self._logits(self.stored, batch["users"], batch["items"])
        return torch.sigmoid(scores.to(self.framework.dtype))

    def _logits(self, weight: Mapping[str, Tensor], users: Tensor, items: Tensor) -> Tensor:
        with self.framework.autocast():
            return logits(weight, users, items, len(self.dims.layers) - 1)

    def observe(self) -> None:
        """Note the type of one sample's score."""
        one = torch.zeros(1, dtype=torch.int32, device=self.framework.device)
        weight = self.masters if self.training else self.stored
        self.framework.observed.note(activations=self._logits(weight, one, one))

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch] of batch ``index``."""
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._logits(self.masters, batch["users"], batch["items"]))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """Logits as ``scores`` [n, 100]: they rank as their sigmoids do, without ties by saturation."""
        items, tensor = arrays["items"], self.framework.tensor
        users = np.repeat(arrays["users"], items.shape[1])
        scores = self._logits(self.masters, tensor(users), tensor(items.reshape(-1)))
        return {"scores": self.framework.array(scores).reshape(items.shape).astype(np.float32)}
