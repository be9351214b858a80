"""GNMT in MXNet Gluon, structured as ``pytorch_model``: a hybrid block for each task and padded shape.

Sequences are time-major internally, [T, B, H]. A block is made for fixed shapes, because symbols have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suite.frameworks.mxnet.parameters import Block
from suite.frameworks.mxnet.recurrent import Dropout, lstm
from suite.workloads.gnmt import spec

Tensor = Any
Weights = Mapping[str, Tensor]
MASKED = -65504.0  # the most negative finite fp16 number


@dataclass(frozen=True)
class Shape:
    """Static sizes of one block: batch, padded source length, target positions."""

    batch: int
    source: int
    target: int


class Network(Block):
    """The layers as methods; each subclass adds one task."""

    def __init__(
        self, parameters: Any, dims: spec.Dimensions, dtype: str, shape: Shape, dropout: Dropout
    ) -> None:
        super().__init__(parameters)
        self._dims, self._dtype, self._shape, self._dropout = dims, dtype, shape, dropout

    def embed(self, F: Any, weight: Weights, ids: Tensor) -> Tensor:
        """Rows of the shared embedding, [..., H] for ``ids`` [...]."""
        sizes = {"input_dim": self._dims.vocabulary, "output_dim": self._dims.hidden}
        return F.Embedding(ids, weight["embedding"], dtype=self._dtype, **sizes)

    def lstm(self, F: Any, weight: Weights, name: str, inputs: Tensor) -> Tensor:
        """The LSTM ``name`` over [T, B, in] from a zero state."""
        kernel, recurrent, bias = (weight[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
        size = self._dims.hidden
        zero = F.zeros(shape=(1, self._shape.batch, size), dtype=self._dtype)
        return lstm(F, inputs, kernel, recurrent, bias, size, (zero, zero))[0]

    def encode(self, F: Any, weight: Weights, source: Tensor, lengths: Tensor) -> Tensor:
        """Encoder outputs [S, B, H] of ``source`` [B, S] with true ``lengths`` [B] (floating point)."""
        drop = self._dropout
        inputs = drop(F, "encoder.0", self.embed(F, weight, F.transpose(source)))

        def reverse(sequence: Tensor) -> Tensor:
            return F.SequenceReverse(sequence, lengths, use_sequence_length=True)

        forward = self.lstm(F, weight, "encoder.0.forward", inputs)
        backward = reverse(self.lstm(F, weight, "encoder.0.backward", reverse(inputs)))
        wide = F.concat(forward, backward, dim=2)
        outputs = self.lstm(F, weight, "encoder.1", drop(F, "encoder.1", wide))
        for layer in range(2, self._dims.layers):
            name = f"encoder.{layer}"
            outputs = outputs + self.lstm(F, weight, name, drop(F, name, outputs))
        return outputs

    def remember(self, F: Any, weight: Weights, outputs: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """The attention's memory: outputs and keys [B, S, H], scaled vector [1, H], mask [B, 1, S]."""
        hidden = self._dims.hidden
        outputs = F.transpose(outputs, (1, 0, 2))
        keys = F.FullyConnected(
            outputs, weight["attention.key"], weight["attention.b"], num_hidden=hidden, flatten=False
        )
        vector = weight["attention.v"]
        scale = F.broadcast_div(weight["attention.g"], F.sqrt(F.sum(F.square(vector))))
        positions = F.reshape(F.arange(self._shape.source, dtype=self._dtype), shape=(1, 1, -1))
        real = F.broadcast_lesser(positions, F.reshape(lengths, shape=(-1, 1, 1)))
        return outputs, keys, F.reshape(F.broadcast_mul(vector, scale), shape=(1, -1)), real

    def align(self, F: Any, weight: Weights, memory: tuple[Tensor, ...], queries: Tensor) -> Tensor:
        """Attention [B, T, S] of queries [B, T, H] to the source, normalised Bahdanau."""
        _, keys, vector, real = memory
        flat = {"no_bias": True, "flatten": False}
        projected = F.FullyConnected(queries, weight["attention.query"], num_hidden=self._dims.hidden, **flat)
        joined = F.tanh(F.broadcast_add(F.expand_dims(projected, 2), F.expand_dims(keys, 1)))
        scores = F.reshape(F.FullyConnected(joined, vector, num_hidden=1, **flat), shape=(0, 0, -1))
        scores = F.broadcast_add(F.broadcast_mul(scores, real), (1.0 - real) * MASKED)
        return F.softmax(scores)

    def decode(self, F: Any, weight: Weights, target: Tensor, memory: tuple[Tensor, ...]) -> Tensor:
        """Logits [T, B, V] for given ``target`` [B, T] (teacher forcing)."""
        drop = self._dropout
        inputs = drop(F, "decoder.0", self.embed(F, weight, F.transpose(target)))
        outputs = self.lstm(F, weight, "decoder.0", inputs)
        attention = self.align(F, weight, memory, F.transpose(outputs, (1, 0, 2)))
        context = F.transpose(F.batch_dot(attention, memory[0]), (1, 0, 2))
        for layer in range(1, self._dims.layers):
            name = f"decoder.{layer}"
            wide = drop(F, name, F.concat(outputs, context, dim=2))
            new = self.lstm(F, weight, name, wide)
            outputs = new + outputs if layer > 1 else new
        return self.classify(F, weight, outputs)

    def classify(self, F: Any, weight: Weights, outputs: Tensor) -> Tensor:
        """Logits [..., V]."""
        values = weight["classifier.weight"], weight["classifier.bias"]
        return F.FullyConnected(outputs, *values, num_hidden=self._dims.vocabulary, flatten=False)

    def step(
        self, F: Any, weight: Weights, token: Tensor, memory: tuple[Tensor, ...], state: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Logits [B K, V] of the word after ``token`` [B K], attention [B, K, S], and the new state.

        The state is hidden and cell [B K, H] of every layer. The K beams of a sentence are adjacent rows.
        """
        after: list[Tensor] = []
        width = 4 * self._dims.hidden

        def cell(layer: int, inputs: Tensor) -> Tensor:
            part = {name: weight[f"decoder.{layer}.{name}"] for name in ("input", "hidden", "bias")}
            total = F.FullyConnected(inputs, part["input"], part["bias"], num_hidden=width)
            total = total + F.FullyConnected(state[2 * layer], part["hidden"], no_bias=True, num_hidden=width)
            enter, forget, candidate, leave = F.SliceChannel(total, num_outputs=4, axis=1)
            kept = F.sigmoid(forget) * state[2 * layer + 1] + F.sigmoid(enter) * F.tanh(candidate)
            after.extend((F.sigmoid(leave) * F.tanh(kept), kept))
            return after[-2]

        outputs = cell(0, self.embed(F, weight, token))
        hidden = self._dims.hidden
        queries = F.reshape(outputs, shape=(self._shape.batch, -1, hidden))
        attention = self.align(F, weight, memory, queries)
        context = F.reshape(F.batch_dot(attention, memory[0]), shape=(-1, hidden))
        for layer in range(1, self._dims.layers):
            new = cell(layer, F.concat(outputs, context, dim=1))
            outputs = new + outputs if layer > 1 else new
        return self.classify(F, weight, outputs), attention, after


class Logits(Network):
    """Logits [T, B, V] by teacher forcing."""

    def hybrid_forward(
        self, F: Any, source: Tensor, lengths: Tensor, target: Tensor, **weight: Tensor
    ) -> Tensor:
        """See the class."""
        named = self.named(weight)
        memory = self.remember(F, named, self.encode(F, named, source, lengths), lengths)
        return self.decode(F, named, target, memory)


class Loss(Network):
    """Smoothed cross entropy over real positions, divided by the number of sentences."""

    def __init__(self, *args: Any, smoothing: float) -> None:
        super().__init__(*args)
        self._smoothing = smoothing

    def hybrid_forward(
        self, F: Any, source: Tensor, lengths: Tensor, target: Tensor, wanted: Tensor, **weight: Tensor
    ) -> Tensor:
        """See the class; ``wanted`` is ``target_out`` [B, T]."""
        named = self.named(weight)
        memory = self.remember(F, named, self.encode(F, named, source, lengths), lengths)
        log_p = F.log_softmax(self.decode(F, named, target, memory))
        wanted = F.transpose(wanted)
        real = F.cast(wanted != spec.PAD, dtype=self._dtype)
        chosen = F.pick(log_p, wanted, axis=2)
        rows = (1.0 - self._smoothing) * chosen + self._smoothing * F.mean(log_p, axis=2)
        return -F.sum(rows * real) / self._shape.batch


class Greedy(Network):
    """Greedy tokens [B, T] (int32), T the target positions of the shape; EOS does not stop a sentence."""

    def hybrid_forward(self, F: Any, source: Tensor, lengths: Tensor, **weight: Tensor) -> Tensor:
        """See the class."""
        named = self.named(weight)
        memory = self.remember(F, named, self.encode(F, named, source, lengths), lengths)
        zero = F.zeros(shape=(self._shape.batch, self._dims.hidden), dtype=self._dtype)
        state = [zero] * (2 * self._dims.layers)
        token = F.full(shape=(self._shape.batch,), val=spec.BOS, dtype="int32")
        tokens = []
        for _ in range(self._shape.target):
            logits, _, state = self.step(F, named, token, memory, state)
            token = F.cast(F.argmax(logits, axis=1), dtype="int32")
            tokens.append(token)
        return F.stack(*tokens, axis=1)
