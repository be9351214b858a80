"""NeuMF as a user would write it in PyTorch: nn.Embedding, nn.Linear, BCE with logits, fused Adam."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from peers.plain import Plain
from peers.plain_loop import arguments, job_of, time_steps
from peers.pytorch_common import plain, staged, start
from suite.contract import Job
from suite.workloads.ncf import spec


class Model(nn.Module):
    """Two embeddings multiplied, two through an MLP, joined by one output."""

    def __init__(self, dims: spec.Dimensions) -> None:
        super().__init__()
        self.mf_user = nn.Embedding(dims.users, dims.factors)
        self.mf_item = nn.Embedding(dims.items, dims.factors)
        self.mlp_user = nn.Embedding(dims.users, dims.half)
        self.mlp_item = nn.Embedding(dims.items, dims.half)
        layers: list[nn.Module] = []
        for inputs, outputs in zip(dims.layers, dims.layers[1:], strict=False):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.mlp = nn.Sequential(*layers)
        self.output = nn.Linear(dims.factors + dims.layers[-1], 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits [B]."""
        product = self.mf_user(users) * self.mf_item(items)
        hidden = self.mlp(torch.cat((self.mlp_user(users), self.mlp_item(items)), dim=1))
        logits: Tensor = self.output(torch.cat((product, hidden), dim=1))[:, 0]
        return logits


def make(job: Job, compiled: bool = False) -> Plain:
    """Training or scoring."""
    device, mixed = start(job)
    _, batch_of = staged(job, device)
    model = Model(spec.dimensions(job.key.scale, job.key.variant)).to(device)
    called: Any = torch.compile(model) if compiled else model
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    lossy = nn.BCEWithLogitsLoss()

    def train(index: int) -> Tensor:
        batch = batch_of(index)
        adam.zero_grad(set_to_none=True)
        with mixed:
            loss: Tensor = lossy(
                called(batch["users"].long(), batch["items"].long()), batch["labels"].float()
            )
        loss.backward()
        adam.step()
        return loss.detach()

    @torch.no_grad()
    def infer(index: int) -> Tensor:
        batch = batch_of(index)
        with mixed:
            return torch.sigmoid(called(batch["users"].long(), batch["items"].long()))

    return plain(model, train if job.key.phase == "train" else infer)


def main() -> None:
    """Time training or scoring."""
    options = arguments(__doc__ or "", "ncf")
    job = job_of("ncf", options)
    time_steps(make(job, options.compile), job, options)


if __name__ == "__main__":
    main()
