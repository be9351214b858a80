"""GNMT in MXNet Gluon: training loss, decoding, and the outputs that tests compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from suite.frameworks.mxnet.framework import Batch, Tensor
from suite.frameworks.mxnet.pair import BasePair
from suite.frameworks.mxnet.recurrent import Dropout
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import mxnet_model as model
from suite.workloads.gnmt.mxnet_beam import MxnetDecoder, Remember, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


class Pair(BasePair):
    """See :class:`suite.contract.Pair`. Inference returns greedy tokens [B, T]."""

    chooses = True
    keeps_norm = True

    def build(self) -> None:
        """Make the dropout; blocks are made at their first use."""
        self.dropout, self._no_dropout = Dropout(self.job.number("dropout")), Dropout()
        self._blocks: dict[tuple[str, model.Shape], Any] = {}

    def observe(self) -> None:
        """Note the type of one embedded token: a decoding step returns only token ids."""
        token = mx.nd.array([spec.BOS], ctx=self.framework.context)
        self.framework.observed.note(activations=mx.nd.take(self.masters["embedding"], token))

    def _block(self, task: str, shape: model.Shape, make: Callable[..., Any]) -> Any:
        """The block of ``task`` for ``shape``, made at its first use: hybridized ones hold static memory."""
        if (task, shape) not in self._blocks:
            dropout = self.dropout if task == "loss" else self._no_dropout
            block = make(self.shared, self.dims, self.framework.dtype, shape, dropout)
            self._blocks[task, shape] = self.framework.make_fast(block)
        return self._blocks[task, shape]

    def _lengths(self, batch: Batch) -> Tensor:
        return batch["source_lengths"].astype(self.framework.dtype)

    def loss(self, batch: Batch) -> Tensor:
        """Smoothed cross entropy over real positions, divided by the number of sentences."""

        def make(*args: Any) -> model.Loss:
            return model.Loss(*args, smoothing=self.job.number("smoothing"))

        block = self._block("loss", _shape(batch), make)
        return block(batch["source"], self._lengths(batch), batch["target_in"], batch["target_out"])

    def infer(self, batch: Batch) -> Tensor:
        """Greedy tokens [B, T] of exactly the reference lengths, then PAD; EOS does not stop a sentence."""
        shape = _shape(batch)
        tokens = self._block("greedy", shape, model.Greedy)(batch["source"], self._lengths(batch))
        position = mx.nd.arange(shape.target, ctx=self.framework.context, dtype="int32").reshape((1, -1))
        kept = mx.nd.broadcast_lesser(position, batch["target_lengths"].reshape((-1, 1)))
        return tokens * kept

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [real target positions, V], sentence after sentence, by teacher forcing, dropout off."""
        batch = self.framework.feed(self.data, index)
        block = self._block("logits", _shape(batch), model.Logits)
        time_major = block(batch["source"], self._lengths(batch), batch["target_in"])
        logits = self.framework.array(time_major).transpose(1, 0, 2)
        real: NDArray[Any] = logits[self.framework.array(batch["target_out"]) != spec.PAD]
        return real

    def decoder(self, arrays: Arrays) -> MxnetDecoder:
        """A step-by-step decoder for ``source`` [n, S] with ``source_lengths`` [n]."""
        size, width = arrays["source"].shape
        shape = model.Shape(size, width, int(self.job.hyper["beam"]))
        encode, step = (self._block(make.__name__, shape, make) for make in (Remember, Step))
        batch = {name: self.framework.tensor(arrays[name]) for name in ("source", "source_lengths")}
        memory = encode(batch["source"], self._lengths(batch))
        return MxnetDecoder(self.framework, step, memory, self.dims, shape)

    def predict(self, arrays: Arrays) -> Arrays:
        """Translations: ``tokens`` [n, L] int32 (read up to EOS) and ``index`` [n], the lines."""
        return beam.translations(self.decoder(arrays), arrays, self.job)


def _shape(batch: Batch) -> model.Shape:
    size, source = batch["source"].shape
    return model.Shape(size, source, batch["target_in"].shape[1])
