"""The LSTM language model in MXNet Gluon. Sequences are time-major internally, [T, B, H]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from suite.frameworks.mxnet.framework import Batch, Tensor
from suite.frameworks.mxnet.pair import BasePair
from suite.frameworks.mxnet.parameters import Block
from suite.frameworks.mxnet.recurrent import Dropout, lstm
from suite.workloads.lstm_ptb import spec
from suite.workloads.lstm_ptb.data import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

Weights = dict[str, Tensor]


class Network(Block):
    """The layers; each subclass adds one task.

    ``state`` is [2 layers, B, H]: hidden and cell of the first layer, then of the second layer, …
    """

    def __init__(self, parameters: Any, dims: spec.Dimensions, dtype: str, dropout: Dropout) -> None:
        super().__init__(parameters)
        self._dims, self._dtype, self._dropout = dims, dtype, dropout

    def logits(self, F: Any, weight: Weights, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [T, B, V] for ``inputs`` [B, T], and the new state. Dropout is between layers, not steps."""
        vocabulary, size = self._dims.vocabulary, self._dims.hidden
        weight = self.named(weight)
        values = F.Embedding(
            F.transpose(inputs), weight["embedding"], input_dim=vocabulary, output_dim=size, dtype=self._dtype
        )
        after: list[Tensor] = []
        for layer in range(self._dims.layers):
            name = f"lstm.{layer}"
            kernel, recurrent, bias = (weight[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
            at = 2 * layer
            start = tuple(F.slice_axis(state, axis=0, begin=k, end=k + 1) for k in (at, at + 1))
            dropped = self._dropout(F, name, values)
            values, last = lstm(F, dropped, kernel, recurrent, bias, size, start)
            after += last
        softmax = weight["softmax.weight"], weight["softmax.bias"]
        hidden = self._dropout(F, "softmax", values)
        logits = F.FullyConnected(hidden, *softmax, num_hidden=vocabulary, flatten=False)
        return logits, F.BlockGrad(F.concat(*after, dim=0))


class Logits(Network):
    """Logits [T, B, V], and the new state."""

    def hybrid_forward(
        self, F: Any, inputs: Tensor, state: Tensor, **weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        return self.logits(F, weight, inputs, state)


class Scored(Network):
    """Negative log likelihoods [T, B] of ``targets`` [B, T], and the new state."""

    def hybrid_forward(
        self, F: Any, inputs: Tensor, state: Tensor, targets: Tensor, **weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        logits, after = self.logits(F, weight, inputs, state)
        return -F.pick(F.log_softmax(logits), F.transpose(targets), axis=2), after


class Pair(BasePair):
    """See :class:`suite.contract.Pair`. Inference returns negative log likelihoods [B, T].

    Training and inference carry the recurrent state from step to step.
    """

    keeps_norm = True

    def build(self) -> None:
        """Make the dropout, the state and a block for each shape: a hybridized block holds static memory."""
        self.dropout = Dropout(self.job.number("dropout"))
        self._carried = self._zero_state(self.job.key.batch)
        self.state = [self._carried]
        self._score = self._block(Scored, self.dropout if self.training else Dropout())
        self._row = self._block(Scored, Dropout())
        self._logits = self._block(Logits, Dropout())

    def _block(self, kind: type[Network], dropout: Dropout) -> Any:
        return self.framework.make_fast(kind(self.shared, self.dims, self.framework.dtype, dropout))

    def _zero_state(self, batch: int) -> Tensor:
        shape = (2 * self.dims.layers, batch, self.dims.hidden)
        return mx.nd.zeros(shape, ctx=self.framework.context, dtype=self.framework.dtype)

    def begin_step(self, index: int) -> None:
        """Reset the state at the first step of an epoch."""
        if index % self.data.steps_per_epoch == 0:
            self._carried[:] = 0

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross entropy, summed over steps and averaged over rows, and the new state."""
        losses, after = self._score(batch["inputs"], self._carried, batch["targets"])
        return losses.sum() / losses.shape[1], after

    def carry(self, carried: Tensor) -> None:
        """Store the state ``carried`` for the next step."""
        self._carried[:] = carried

    def infer(self, batch: Batch) -> Tensor:
        """Negative log likelihoods [B, T]; updates the state."""
        losses, after = self._score(batch["inputs"], self._carried, batch["targets"])
        self.carry(after)
        return losses.T

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [T, B, V] without dropout, from the carried state, which does not change."""
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._logits(batch["inputs"], self._carried)[0])

    def predict(self, arrays: Arrays) -> Arrays:
        """``nll`` [n - 1], the negative log likelihood of every token but the first, from a zero state."""
        state, parts = self._zero_state(1), []
        for window in windows(arrays["tokens"], self.dims.steps):
            batch = {name: self.framework.tensor(array) for name, array in window.items()}
            losses, after = self._row(batch["inputs"], state, batch["targets"])
            state[:] = after
            parts.append(losses.reshape((-1,)).copy())
        nll = self.framework.array(mx.nd.concat(*parts, dim=0))
        return {"nll": nll[: len(arrays["tokens"]) - 1]}
