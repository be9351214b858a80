"""GNMT in PyTorch as plain functions of named weights: one path, in which two operators have a fast form.

Sequences are time-major inside, [T, B, H], as the recurrent kernels want them. Weights are a dict by
canonical name, in the type of the arithmetic; the caller casts masters to it and so decides the precision.
The structure is that of the MLPerf reference (``retired_benchmarks/gnmt/pytorch/seq2seq/models``): attention
over all target positions at once, because its query is the first decoder layer's output, without input
feeding; residuals from the third layer on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from suite.frameworks.pytorch import recurrent as recurrent_layers
from suite.frameworks.pytorch.recurrent import NO_DROPOUT, Dropout
from suite.workloads.gnmt import pytorch_kernels as kernels
from suite.workloads.gnmt import spec

Weights = Mapping[str, Tensor]
MASKED = -65504.0  # the most negative finite fp16 number


def lstm(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    """The LSTM ``name`` from a zero state over [T, B, in]."""
    kernel, recurrent, bias = (weights[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
    return recurrent_layers.lstm(inputs, kernel, recurrent, bias)[0]


def reversed_rows(lengths: Tensor, steps: int) -> Tensor:
    """Positions [T, B] that reverse each sentence within its length and leave the padding in place."""
    position = torch.arange(steps, device=lengths.device)[:, None]
    return torch.where(position < lengths, lengths - 1 - position, position)


def reverse(inputs: Tensor, rows: Tensor) -> Tensor:
    """Reorder [T, B, H] in time by ``rows`` of :func:`reversed_rows`."""
    result: Tensor = _Reverse.apply(inputs, rows)  # type: ignore[no-untyped-call]
    return result


class _Reverse(torch.autograd.Function):
    """A reversal is its own inverse: its gradient is a gather too, not a scatter with atomic additions."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        return inputs.gather(0, rows[:, :, None].expand_as(inputs))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (rows,) = ctx.saved_tensors
        return gradient.gather(0, rows[:, :, None].expand_as(gradient)), None


def encode(weights: Weights, layers: int, source: Tensor, lengths: Tensor, drop: Dropout) -> Tensor:
    """Encoder outputs [S, B, H] of ``source`` [B, S] with true ``lengths`` [B] (int64)."""
    inputs = drop("encoder.0", functional.embedding(source.t(), weights["embedding"]))
    rows = reversed_rows(lengths, source.shape[1])
    forward = lstm(weights, "encoder.0.forward", inputs)
    backward = reverse(lstm(weights, "encoder.0.backward", reverse(inputs, rows)), rows)
    outputs = lstm(weights, "encoder.1", drop("encoder.1", torch.cat((forward, backward), dim=2)))
    for layer in range(2, layers):
        name = f"encoder.{layer}"
        outputs = outputs + lstm(weights, name, drop(name, outputs))
    return outputs


@dataclass
class Memory:
    """What attention needs of the source: outputs and keys [S, B, H], scaled vector [H], mask [B, 1, S]."""

    outputs: Tensor
    keys: Tensor
    vector: Tensor
    padding: Tensor

    @classmethod
    def of(cls, weights: Weights, outputs: Tensor, lengths: Tensor) -> Memory:
        """Prepare the attention over encoder ``outputs`` [S, B, H]."""
        keys = functional.linear(outputs, weights["attention.key"], weights["attention.b"])
        vector = weights["attention.v"].to(_wide(outputs))
        vector = vector / vector.norm() * weights["attention.g"].to(vector.dtype)
        positions = torch.arange(outputs.shape[0], device=outputs.device)
        return cls(outputs, keys, vector, (positions >= lengths[:, None])[:, None])


def align(weights: Weights, memory: Memory, queries: Tensor, fast: bool) -> Tensor:
    """Attention [B, T, S] of decoder outputs [T, B, H] to the source, normalised Bahdanau."""
    projected = functional.linear(queries, weights["attention.query"])
    score = kernels.fast_score if fast else kernels.plain_score
    scores = score(projected, memory.keys, memory.vector).masked_fill(memory.padding, MASKED)
    return torch.softmax(scores, dim=2)


def attend(weights: Weights, memory: Memory, queries: Tensor, fast: bool) -> Tensor:
    """Context vectors [T, B, H] for decoder outputs [T, B, H]."""
    return weigh(memory, align(weights, memory, queries, fast))


def weigh(memory: Memory, attention: Tensor) -> Tensor:
    """Context vectors [T, B, H]: the encoder's outputs weighed by ``attention`` [B, T, S]."""
    weighed = torch.bmm(attention.to(memory.outputs.dtype), memory.outputs.transpose(0, 1))
    return weighed.transpose(0, 1)


def decode(
    weights: Weights, layers: int, target: Tensor, memory: Memory, drop: Dropout, fast: bool
) -> Tensor:
    """Decoder outputs [T, B, H] before the classifier, for given ``target`` [B, T] (teacher forcing)."""
    inputs = drop("decoder.0", functional.embedding(target.t(), weights["embedding"]))
    outputs = lstm(weights, "decoder.0", inputs)
    context = attend(weights, memory, outputs, fast)
    for layer in range(1, layers):
        name = f"decoder.{layer}"
        found = lstm(weights, name, drop(name, torch.cat((outputs, context), dim=2)))
        outputs = found + outputs if layer > 1 else found
    return outputs


def classify(weights: Weights, outputs: Tensor) -> Tensor:
    """Logits [..., V]."""
    return functional.linear(outputs, weights["classifier.weight"], weights["classifier.bias"])


@dataclass
class State:
    """Decoder state between single steps: hidden and cell [B, H] of every layer."""

    hidden: list[Tensor]
    cell: list[Tensor]

    @classmethod
    def zeros(cls, layers: int, like: Tensor) -> State:
        """The start of every sentence; ``like`` is [B, H]."""
        return cls([torch.zeros_like(like)] * layers, [torch.zeros_like(like)] * layers)

    def move(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was."""
        self.hidden = [tensor[rows] for tensor in self.hidden]
        self.cell = [tensor[rows] for tensor in self.cell]


def decode_step(
    weights: Weights, state: State, token: Tensor, memory: Memory, fast: bool
) -> tuple[Tensor, Tensor]:
    """Logits [B K, V] behind ``token`` [B K], and attention [B, K, S]; moves ``state`` on.

    The same maths as :func:`decode`. A sentence may have K tokens beside each other, one for each beam.
    """

    def cell(layer: int, inputs: Tensor) -> Tensor:
        name = f"decoder.{layer}"
        bias = weights[f"{name}.bias"]
        state.hidden[layer], state.cell[layer] = torch.lstm_cell(
            inputs,
            (state.hidden[layer], state.cell[layer]),
            weights[f"{name}.input"],
            weights[f"{name}.hidden"],
            bias,
            torch.zeros_like(bias),
        )
        return state.hidden[layer]

    outputs = cell(0, functional.embedding(token, weights["embedding"]))
    sentences = memory.outputs.shape[1]
    queries = outputs.reshape(sentences, -1, outputs.shape[1]).transpose(0, 1)
    attention = align(weights, memory, queries, fast)
    context = weigh(memory, attention).transpose(0, 1).reshape(outputs.shape)
    for layer in range(1, len(state.hidden)):
        found = cell(layer, torch.cat((outputs, context), dim=1))
        outputs = found + outputs if layer > 1 else found
    return classify(weights, outputs), attention


def _wide(tensor: Tensor) -> torch.dtype:
    """fp32 for half precision, the tensor's own type otherwise."""
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype


def generate(
    weights: Weights, layers: int, source: Tensor, lengths: Tensor, steps: int, *, fast: bool
) -> Tensor:
    """Greedy tokens [B, steps] int32; EOS does not stop a sentence."""
    memory = Memory.of(weights, encode(weights, layers, source, lengths, NO_DROPOUT), lengths)
    state = State.zeros(layers, memory.outputs[0])
    token = torch.full_like(source[:, 0], spec.BOS)
    found: list[Tensor] = []
    for _ in range(steps):
        token = decode_step(weights, state, token, memory, fast)[0].argmax(dim=1)
        found.append(token)
    return torch.stack(found, dim=1).to(torch.int32)
