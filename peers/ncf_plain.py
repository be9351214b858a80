"""NeuMF as a user would write it in PyTorch: nn.Embedding, nn.Linear, BCE with logits, fused Adam."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from peers.plain_loop import arguments, job_of, set_precision, time_steps
from suite.workloads.ncf import data as ncf_data
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


def main() -> None:
    """Time training or scoring."""
    options = arguments(__doc__ or "", "ncf")
    job = job_of("ncf", options)
    device = torch.device(job.device)
    half = set_precision(options.precision)
    data = ncf_data.open_data(job)
    batch = {name: torch.from_numpy(array).to(device) for name, array in data.batch(0).items()}
    users, items = batch["users"].long(), batch["items"].long()
    train = options.phase == "train"
    model = Model(spec.dimensions(job.key.scale, job.key.variant)).to(device)
    called: Any = torch.compile(model) if options.compile else model
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    lossy = nn.BCEWithLogitsLoss()

    def cast() -> Any:
        return torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None)

    def train_step(_: int) -> Tensor:
        adam.zero_grad(set_to_none=True)
        with cast():
            loss = lossy(called(users, items), batch["labels"].float())
        loss.backward()
        adam.step()
        return loss.detach()

    @torch.no_grad()
    def infer_step(_: int) -> Tensor:
        with cast():
            return torch.sigmoid(called(users, items))

    facts = {"peer": "ncf_plain", "phase": options.phase, "precision": options.precision}
    facts |= {"batch": job.key.batch, "compile": options.compile}
    time_steps(train_step if train else infer_step, spec.units(job.key, 1), options.soak, facts)


if __name__ == "__main__":
    main()
