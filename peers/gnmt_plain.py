"""GNMT as a user would write it in PyTorch: nn.LSTM, packed first layer, additive attention, autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peers.plain import Plain
from peers.plain_loop import arguments, job_of, time_steps
from peers.pytorch_common import Batch, plain, staged, start
from suite.contract import Job
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


def make(job: Job, compiled: bool = False) -> Plain:
    """Training, or greedy decoding of the reference length; ``compiled`` compiles the attention alone."""
    device, mixed = start(job)
    _, batch_of = staged(job, device)
    dims, training = spec.dimensions(job.key.scale, job.key.variant), job.key.phase == "train"
    model = Model(dims.vocabulary, dims.hidden, job.number("dropout")).to(device)
    model.train(training)
    if compiled:
        model.attention.compile()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    lossy = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1, reduction="sum")

    def encode(batch: Batch) -> tuple[Tensor, Tensor]:
        lengths = batch["source_lengths"].cpu()  # packing wants them on the host
        return model.encode(batch["source"].long(), lengths), batch["source"] == 0

    def train(index: int) -> Tensor:
        batch = batch_of(index)
        adam.zero_grad(set_to_none=True)
        with mixed:
            memory, padding = encode(batch)
            logits = model.decode(batch["target_in"].long(), memory, padding, [None] * 4)
            loss = lossy(logits.flatten(0, 1), batch["target_out"].long().flatten()) / len(memory)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0, foreach=True)
        adam.step()
        return loss.detach()

    @torch.no_grad()
    def infer(index: int) -> Tensor:
        batch = batch_of(index)
        with mixed:
            memory, padding = encode(batch)
            states: list[Any] = [None] * 4
            token = torch.full_like(batch["source"][:, :1], spec.BOS).long()
            tokens = []
            for _ in range(batch["target_in"].shape[1]):
                token = model.decode(token, memory, padding, states).argmax(dim=2)
                tokens.append(token)
        return torch.cat(tokens, dim=1)

    return plain(model, train if training else infer)


def main() -> None:
    """Time training or greedy decoding of the reference length."""
    options = arguments(__doc__ or "", "gnmt")
    job = job_of("gnmt", options)
    time_steps(make(job, options.compile), job, options)


if __name__ == "__main__":
    main()
