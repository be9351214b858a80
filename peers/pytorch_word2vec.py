"""Skip-gram with negative sampling as a user would write it in PyTorch: ``nn.Embedding``, autograd, SGD.

Differences to the suite: the pairs of a batch are listed one by one, as in tutorials, and a row that many
pairs use moves by their sum, without the suite's bound.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from peers.plain import Plain
from peers.pytorch_common import Batch, plain, staged, start
from suite.contract import Job
from suite.workloads.word2vec import spec

Pairs = tuple[Tensor, Tensor, Tensor]


class Model(nn.Module):
    """Two tables; logits [P, 1 + K] of contexts [P] against targets [P, 1 + K]."""

    def __init__(self, dims: spec.Dimensions) -> None:
        super().__init__()
        self.input = nn.Embedding(dims.vocabulary, dims.width, sparse=True)
        self.output = nn.Embedding(dims.vocabulary, dims.width, sparse=True)
        nn.init.uniform_(self.input.weight, -0.5 / dims.width, 0.5 / dims.width)
        nn.init.zeros_(self.output.weight)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """See the class."""
        return torch.bmm(self.output(targets), self.input(contexts).unsqueeze(2)).squeeze(2)


def pairs(batch: Batch) -> Pairs:
    """Contexts [P] and targets [P, 1 + K] of every pair of a batch, and which targets count [P, 1 + K]."""
    centre, offset = batch["contexts"].nonzero(as_tuple=True)
    return batch["words"][centre + offset].long(), batch["targets"][centre].long(), batch["live"][centre]


def make(job: Job) -> Plain:
    """Training, or the nearest words of a batch of queries."""
    device, mixed = start(job)
    data, batch_of = staged(job, device)
    model = Model(spec.dimensions(job.key.scale, job.key.variant)).to(device)
    sgd = torch.optim.SGD(model.parameters(), lr=0.025)
    with torch.no_grad(), mixed:
        unit = nn.functional.normalize(model.input.weight)
    constant_pairs = pairs(batch_of(0)) if job.key.phase == "train" and data.slot(0) is not None else None

    def train(index: int) -> Tensor:
        contexts, targets, live = constant_pairs or pairs(batch_of(index))
        sgd.zero_grad()
        with mixed:
            logits = model(contexts, targets).float()
        labels = torch.zeros_like(logits)
        labels[:, 0] = 1
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels, weight=live, reduction="sum")
        loss.backward()
        sgd.step()
        return loss.detach() / len(contexts)

    @torch.no_grad()
    def infer(index: int) -> Tensor:
        queries = batch_of(index)["queries"].long()
        with mixed:
            similar = unit[queries] @ unit.t()
        similar[torch.arange(len(queries)), queries] = -1
        cosines, words = similar.float().topk(spec.NEIGHBOURS)
        return torch.stack((words.float(), cosines), dim=1)

    return plain(model, train if job.key.phase == "train" else infer)
