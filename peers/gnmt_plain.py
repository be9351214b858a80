"""GNMT as a user would write it in PyTorch: nn.LSTM, packed first layer, additive attention, autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peers.plain_loop import arguments, job_of, set_precision, time_steps
from suite.workloads.gnmt import data as gnmt_data
from suite.workloads.gnmt import spec


class Attention(nn.Module):
    """Normalised Bahdanau attention over all target positions at once."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.v = nn.Parameter(torch.empty(hidden).uniform_(-0.1, 0.1))
        self.g = nn.Parameter(torch.full((1,), hidden**-0.5))
        self.b = nn.Parameter(torch.zeros(hidden))

    def forward(self, queries: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """Contexts [B, T, H] for queries [B, T, H] over memory [B, S, H]; padding is [B, S]."""
        joined = self.query(queries)[:, :, None] + self.key(memory)[:, None] + self.b
        vector = self.v / self.v.norm() * self.g
        scores = torch.tanh(joined).matmul(vector.to(joined.dtype))
        weights = torch.softmax(scores.masked_fill(padding[:, None], -65504.0), dim=-1)
        return torch.bmm(weights.to(memory.dtype), memory)


class Model(nn.Module):
    """Four encoder and four decoder layers, as the MLPerf v0.7 reference."""

    def __init__(self, vocabulary: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, hidden, padding_idx=0)
        self.first = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.encoder = nn.ModuleList(
            [nn.LSTM(2 * hidden, hidden, batch_first=True)]
            + [nn.LSTM(hidden, hidden, batch_first=True) for _ in range(2)]
        )
        self.attention = Attention(hidden)
        self.decoder = nn.ModuleList(
            [nn.LSTM(hidden, hidden, batch_first=True)]
            + [nn.LSTM(2 * hidden, hidden, batch_first=True) for _ in range(3)]
        )
        self.classifier = nn.Linear(hidden, vocabulary)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.uniform_(parameter, -0.1, 0.1)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Encoder outputs [B, S, H]; ``lengths`` [B] on the host, as packing wants them."""
        embedded = self.dropout(self.embedding(source))
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(
            self.first(packed)[0], batch_first=True, total_length=source.shape[1]
        )
        outputs = self.encoder[0](self.dropout(outputs))[0]
        for layer in self.encoder[1:]:
            outputs = layer(self.dropout(outputs))[0] + outputs
        return outputs

    def decode(self, target: Tensor, memory: Tensor, padding: Tensor, states: list[Any]) -> Tensor:
        """Logits [B, T, V]; ``states`` holds each layer's state and is moved on."""
        outputs, states[0] = self.decoder[0](self.dropout(self.embedding(target)), states[0])
        context = self.attention(outputs, memory, padding)
        for index, layer in enumerate(self.decoder[1:], start=1):
            joined = self.dropout(torch.cat((outputs, context), dim=2))
            found, states[index] = layer(joined, states[index])
            outputs = found + outputs if index > 1 else found
        logits: Tensor = self.classifier(outputs)
        return logits


def main() -> None:
    """Time training or greedy decoding of the reference length."""
    options = arguments(__doc__ or "", "gnmt")
    job = job_of("gnmt", options)
    dims, device = spec.dimensions(job.key.scale, job.key.variant), torch.device(job.device)
    half = set_precision(options.precision)
    data = gnmt_data.open_data(job)
    staged: dict[int, dict[str, Tensor]] = {}
    for step in range(110):
        slot = data.slot(step)
        if slot is not None and slot not in staged:
            arrays = {name: torch.from_numpy(array) for name, array in data.batch(step).items()}
            staged[slot] = {name: t.to(device) for name, t in arrays.items()}
            staged[slot]["host_lengths"] = arrays["source_lengths"]
    train = options.phase == "train"
    model = Model(dims.vocabulary, dims.hidden, job.number("dropout") if train else 0.0).to(device)
    if options.compile:
        model.attention.compile()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    lossy = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1, reduction="sum")

    def cast() -> Any:
        return torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None)

    def train_step(index: int) -> Tensor:
        batch = staged[data.slot(index) or 0]
        adam.zero_grad(set_to_none=True)
        with cast():
            memory = model.encode(batch["source"].long(), batch["host_lengths"])
            padding = batch["source"] == 0
            logits = model.decode(batch["target_in"].long(), memory, padding, [None] * 4)
            loss = lossy(logits.flatten(0, 1), batch["target_out"].long().flatten()) / len(memory)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0, foreach=True)
        adam.step()
        return loss.detach()

    @torch.no_grad()
    def infer_step(index: int) -> Tensor:
        batch = staged[data.slot(index) or 0]
        with cast():
            memory = model.encode(batch["source"].long(), batch["host_lengths"])
            padding, states = batch["source"] == 0, [None] * 4
            token = torch.full_like(batch["source"][:, :1], spec.BOS).long()
            tokens = []
            for _ in range(batch["target_in"].shape[1]):
                token = model.decode(token, memory, padding, states).argmax(dim=2)
                tokens.append(token)
        return torch.cat(tokens, dim=1)

    if not train:
        model.eval()
    facts = {"peer": "gnmt_plain", "phase": options.phase, "precision": options.precision}
    facts |= {"batch": job.key.batch, "compile": options.compile}
    time_steps(train_step if train else infer_step, spec.units(job.key, 1), options.soak, facts)


if __name__ == "__main__":
    main()
