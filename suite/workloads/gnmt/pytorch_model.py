"""GNMT in PyTorch as functions of named weights; two operators have fast kernels (``pytorch_kernels``).

Sequences are time-major internally, [T, B, H], as the recurrent kernels require. Weights are a dict by
canonical name, in the compute type: the caller casts the master weights and so decides the precision. The
structure is that of the MLPerf reference (``retired_benchmarks/gnmt/pytorch/seq2seq/models``): the query of
attention is the first decoder layer's output, without input feeding, so that attention is computed for all
target positions at once; residual connections start at the third layer.
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
    """Positions [T, B] that reverse each sentence within its length and keep the padding at the end."""
    position = torch.arange(steps, device=lengths.device)[:, None]
    return torch.where(position < lengths, lengths - 1 - position, position)


def reverse(inputs: Tensor, rows: Tensor) -> Tensor:
    """Reorder [T, B, H] in time by ``rows`` of :func:`reversed_rows`."""
    result: Tensor = _Reverse.apply(inputs, rows)  # type: ignore[no-untyped-call]
    return result


class _Reverse(torch.autograd.Function):
    """A gather with the same gather as its gradient (a reversal is its own inverse), without atomics."""

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
    """The source for attention: outputs and keys [S, B, H], scaled vector [H], mask of padding [B, 1, S]."""

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
    """Context vectors [T, B, H]: the encoder's outputs weighted by ``attention`` [B, T, S]."""
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
        new = lstm(weights, name, drop(name, torch.cat((outputs, context), dim=2)))
        outputs = new + outputs if layer > 1 else new
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
        """The state at the start of a sentence; ``like`` is [B, H]."""
        return cls([torch.zeros_like(like)] * layers, [torch.zeros_like(like)] * layers)

    def move(self, rows: Tensor) -> None:
        """Copy to each row i the row ``rows[i]``."""
        self.hidden = [tensor[rows] for tensor in self.hidden]
        self.cell = [tensor[rows] for tensor in self.cell]


def decode_step(
    weights: Weights, state: State, token: Tensor, memory: Memory, fast: bool
) -> tuple[Tensor, Tensor]:
    """Logits [B K, V] of the word after ``token`` [B K], and attention [B, K, S]; updates ``state``.

    The same computation as :func:`decode`. The K beams of a sentence are adjacent rows.
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
        new = cell(layer, torch.cat((outputs, context), dim=1))
        outputs = new + outputs if layer > 1 else new
    return classify(weights, outputs), attention


def _wide(tensor: Tensor) -> torch.dtype:
    """The type for sums: fp32 for half precision, otherwise the tensor's type."""
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype


def generate(
    weights: Weights, layers: int, source: Tensor, lengths: Tensor, steps: int, *, fast: bool
) -> Tensor:
    """Greedy tokens [B, steps] int32; EOS does not stop a sentence."""
    memory = Memory.of(weights, encode(weights, layers, source, lengths, NO_DROPOUT), lengths)
    state = State.zeros(layers, memory.outputs[0])
    token = torch.full_like(source[:, 0], spec.BOS)
    tokens: list[Tensor] = []
    for _ in range(steps):
        token = decode_step(weights, state, token, memory, fast)[0].argmax(dim=1)
        tokens.append(token)
    return torch.stack(tokens, dim=1).to(torch.int32)
