"""GNMT in TensorFlow: training loss, decoding, and the outputs that tests compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.tensorflow.framework import Batch, Tensor
from suite.frameworks.tensorflow.pair import BasePair
from suite.frameworks.tensorflow.recurrent import NO_DROPOUT, Dropout, with_transposed
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import tensorflow_model as model
from suite.workloads.gnmt.tensorflow_beam import TensorflowDecoder, scores_and_state


class Pair(BasePair):
    """GNMT. Each step casts the master weights to the compute type."""

    chooses = True
    keeps_norm = True

    def build(self) -> None:
        """Make the dropout and the functions for outputs, evaluation and decoding."""
        self.dropout = Dropout(self.job.number("dropout"))
        self._outputs = self.framework.make_fast(self._logits)
        self._encode = self.framework.make_fast(self._remember)
        compiled = self.framework.cuda
        self._decode_step = tf.function(scores_and_state, autograph=False, jit_compile=compiled)

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights in the compute type; on a CPU some of them also transposed."""
        weights = self.cast()
        if self.framework.cuda:
            return weights
        return with_transposed(weights, model.multiplied_in_steps(weights))

    def observe(self) -> None:
        """Note the type of one encoded token: a decoding step returns only token ids."""
        if self.training:
            return
        token, length = tf.constant([[spec.BOS]]), tf.constant([1])
        encoded = model.encode(self.read(), self.dims.layers, token, length, NO_DROPOUT)
        self.framework.observed.note(activations=encoded)

    def _hidden(self, weights: model.Weights, batch: Batch, dropout: Dropout) -> Tensor:
        """Decoder outputs [T, B, H] by teacher forcing."""
        memory = self._memory(weights, batch, dropout)
        return model.decode(weights, self.dims.layers, batch["target_in"], memory, dropout)

    def _memory(self, weights: model.Weights, batch: Batch, dropout: Dropout) -> model.Memory:
        lengths = batch["source_lengths"]
        outputs = model.encode(weights, self.dims.layers, batch["source"], lengths, dropout)
        return model.Memory.of(weights, outputs, lengths)

    def loss(self, batch: Batch) -> Tensor:
        """Smoothed cross entropy over real positions, divided by the number of sentences."""
        weights = self.cast()
        hidden = self._hidden(weights, batch, self.dropout)
        self.framework.observed.note(activations=hidden)
        logits, targets = model.classify(weights, hidden), tf.transpose(batch["target_out"])
        smoothing = self.job.number("smoothing")
        total = model.smoothed_loss(logits, targets, smoothing, self.framework.dtype)
        return total / batch["source"].shape[0]

    def infer(self, batch: Batch) -> Tensor:
        """Greedy tokens [B, T] of exactly the reference lengths, then PAD; EOS does not stop a sentence."""
        source, lengths = batch["source"], batch["source_lengths"]
        steps = batch["target_in"].shape[1]
        tokens = model.generate(self.read(), self.dims.layers, source, lengths, steps)
        return tf.where(tf.sequence_mask(batch["target_lengths"], steps), tokens, spec.PAD)

    def _logits(self, batch: Batch) -> Tensor:
        """Logits [B, T, V] by teacher forcing, dropout off."""
        weights = self.cast()
        logits = model.classify(weights, self._hidden(weights, batch, NO_DROPOUT))
        return tf.transpose(logits, (1, 0, 2))

    def _remember(self, batch: Batch) -> list[Tensor]:
        """The fields of the attention's :class:`Memory` for the sources of ``batch``."""
        memory = self._memory(self.cast(), batch, NO_DROPOUT)
        return [memory.outputs, memory.keys, memory.vector, memory.padding]

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [real target positions, V], sentence after sentence, by teacher forcing, dropout off."""
        batch = self.framework.feed(self.data, index)
        logits = self.framework.array(self._outputs(batch, None))
        real: NDArray[Any] = logits[self.framework.array(batch["target_out"]) != spec.PAD]
        return real

    def decoder(self, arrays: Arrays) -> TensorflowDecoder:
        """A step-by-step decoder for ``source`` [n, S] with ``source_lengths`` [n]."""
        batch = {name: self.framework.tensor(arrays[name]) for name in ("source", "source_lengths")}
        memory, beams = self._encode(batch, None), int(self.job.hyper["beam"])
        return TensorflowDecoder(self._decode_step, self.cast(), memory, self.dims.layers, beams)

    def predict(self, arrays: Arrays) -> Arrays:
        """Translations: ``tokens`` [n, L] int32 (read up to EOS) and ``index`` [n], the lines."""
        return beam.translations(self.decoder(arrays), arrays, self.job)
