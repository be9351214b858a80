"""The LSTM language model as a user would write it in PyTorch: ``nn.LSTM``, clipping, SGD.

Difference to the suite: PyTorch's LSTM has two biases, both trained.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from peers.plain import Plain
from peers.pytorch_common import plain, staged, start
from suite.contract import Job
from suite.workloads.lstm_ptb import spec

State = tuple[Tensor, Tensor]


class Model(nn.Module):
    """Embedding, LSTM layers and softmax layer, with dropout in front of each but the embedding."""

    def __init__(self, dims: spec.Dimensions, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(dims.vocabulary, dims.hidden)
        self.lstm = nn.LSTM(dims.hidden, dims.hidden, dims.layers, dropout=dropout)
        self.softmax = nn.Linear(dims.hidden, dims.vocabulary)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -float(dims.spread), float(dims.spread))

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits [T, B, V] of ``tokens`` [T, B], and the state moved on."""
        outputs, state = self.lstm(self.dropout(self.embedding(tokens)), state)
        return self.softmax(self.dropout(outputs)), state


def make(job: Job) -> Plain:
    """Training with the state carried on, or negative log likelihoods."""
    device, mixed = start(job)
    _, batch_of = staged(job, device)
    dims = spec.dimensions(job.key.scale, job.key.variant)
    model = Model(dims, job.number("dropout")).to(device)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    zero = torch.zeros(dims.layers, job.key.batch, dims.hidden, device=device)
    carried: list[State] = [(zero, zero)]

    def losses(index: int) -> Tensor:
        batch = batch_of(index)
        hidden, cell = carried[0]
        with mixed:
            logits, moved = model(batch["inputs"].t().long(), (hidden.detach(), cell.detach()))
        carried[0] = moved
        return nn.functional.cross_entropy(
            logits.float().flatten(0, 1), batch["targets"].t().long().flatten(), reduction="none"
        )

    def train(index: int) -> Tensor:
        sgd.zero_grad()
        loss = losses(index).sum() / job.key.batch
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), job.number("clip"))
        sgd.step()
        return loss.detach()

    @torch.no_grad()
    def infer(index: int) -> Tensor:
        return losses(index)

    training = job.key.phase == "train"
    model.train(training)
    return plain(model, train if training else infer)
