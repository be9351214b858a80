"""GNMT's step-by-step decoder in MXNet, for the search of :mod:`suite.workloads.gnmt.beam`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import mxnet_model as model

if TYPE_CHECKING:
    from numpy.typing import NDArray

Tensor = Any

# Each block holds all parameters but uses only the encoder's or the decoder's.
warnings.filterwarnings("ignore", message="Parameter .* is not used by any computation")


class Remember(model.Network):
    """The attention's memory: see ``Network.remember``."""

    def hybrid_forward(self, F: Any, source: Tensor, lengths: Tensor, **weight: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        named = self.named(weight)
        return self.remember(F, named, self.encode(F, named, source, lengths), lengths)


class Step(model.Network):
    """One decoder step of all beams; the shape's ``target`` is the number of beams."""

    def hybrid_forward(
        self,
        F: Any,
        tokens: Tensor,
        rows: Tensor,
        memory: list[Tensor],
        state: list[Tensor],
        **weight: Tensor,
    ) -> tuple[Tensor, ...]:
        """Log probabilities [B K, V], attention [B, K, S], best words, their log probabilities, new state."""
        moved = [F.take(tensor, rows) for tensor in state]
        logits, attention, after = self.step(F, self.named(weight), tokens, tuple(memory), moved)
        log_p = F.log_softmax(logits)
        # All keys are different whole numbers, exact in float64: topk meets no ties.
        words = self._dims.vocabulary
        keys = F.floor(F.cast(log_p, dtype="float64") * beam.GRID + 0.5) * words
        keys = F.broadcast_sub(keys, F.reshape(F.arange(words, dtype="float64"), shape=(1, -1)))
        beams = self._shape.target
        best = F.topk(keys, k=beams, ret_typ="indices", dtype="int32")
        columns = F.SliceChannel(best, num_outputs=beams, axis=1, squeeze_axis=True)
        gains = [F.pick(log_p, column) for column in (columns if beams > 1 else [columns])]
        return (log_p, attention, best, F.stack(*gains, axis=1), *after)


class MxnetDecoder:
    """See :class:`suite.workloads.gnmt.beam.Decoder`: the beams of a sentence are neighbours in one batch."""

    def __init__(
        self, framework: Any, step: Any, memory: list[Tensor], dims: spec.Dimensions, shape: model.Shape
    ) -> None:
        self._framework, self._step = framework, step
        self._memory = [tensor.copy() for tensor in memory]  # its block overwrites its outputs
        size = shape.batch * shape.target
        zero = mx.nd.zeros((size, dims.hidden), ctx=framework.context, dtype=framework.dtype)
        self._state = [zero] * (2 * dims.layers)
        self._first = np.arange(shape.batch, dtype=np.int32)[:, None] * shape.target

    def scores(self, tokens: NDArray[Any], parents: NDArray[Any]) -> tuple[Tensor, ...]:
        """Log probabilities [B K, V], attention [B, K, S], best words and their scores [B K, K]."""
        rows = self._framework.tensor((self._first + parents).astype(np.int32).ravel())
        words = self._framework.tensor(tokens.astype(np.int32).ravel())
        log_p, attention, best, gains, *state = self._step(words, rows, self._memory, self._state)
        # A block with static memory overwrites its outputs, but they are the next step's inputs.
        self._state = [tensor.copy() for tensor in state]
        return log_p, attention, best, gains

    def advance(
        self, tokens: NDArray[Any], parents: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """See :class:`suite.workloads.gnmt.beam.Decoder`."""
        _, attention, best, gains = self.scores(tokens, parents)
        shape = (*tokens.shape, tokens.shape[1])
        array = self._framework.array
        return array(best).reshape(shape), array(gains).reshape(shape), array(attention)
