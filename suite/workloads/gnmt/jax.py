"""GNMT in JAX: training loss, decoding, and the outputs that tests compare."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.jax.framework import Batch, Tensor
from suite.frameworks.jax.pair import BasePair, Inputs, Weights
from suite.frameworks.jax.recurrent import NO_DROPOUT, Dropout, token_losses
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import jax_model as model
from suite.workloads.gnmt.jax_beam import JaxDecoder, scores_and_state


class Pair(BasePair):
    """GNMT. Each step casts the master weights to the compute type; the embedding only in the rows it reads.

    A batch has one of five shapes, and each has its compiled step.
    """

    chooses = True
    keeps_norm = True

    def build(self) -> None:
        """Make the dropout and the functions for outputs, evaluation and decoding."""
        self.dropout = Dropout(self.job.number("dropout"))
        fast = self.framework.make_fast
        self._outputs = fast(self._logits)
        self._encode = fast(self._encoded)
        self._decode_step = fast(scores_and_state, donate=(2,))

    def inference_weights(self) -> Weights:
        """The weights in the compute type, those of the decoder as its steps read them."""
        return model.for_decoding(self.cast(self.masters), self.dims.layers)

    def _products(self, masters: Weights) -> Weights:
        """The weights of products in the compute type; the embedding as it is."""
        return self.cast(masters) | {"embedding": masters["embedding"]}

    def _memory(self, weights: Weights, batch: Batch, dropout: Dropout) -> model.Memory:
        lengths = batch["source_lengths"]
        outputs = model.encode(weights, self.dims.layers, batch["source"], lengths, dropout)
        return model.Memory.of(weights, outputs, lengths)

    def _classified(self, weights: Weights, batch: Batch, dropout: Dropout) -> Tensor:
        """Logits [T, B, V] by teacher forcing."""
        memory = self._memory(weights, batch, dropout)
        hidden = model.decode(weights, self.dims.layers, batch["target_in"], memory, dropout)
        self.framework.observed.note(activations=hidden)
        return model.classify(weights, hidden)

    def loss(self, inputs: Inputs) -> Tensor:
        """Smoothed cross entropy over real positions, divided by the number of sentences."""
        weights, dropout = self._products(inputs.weights), self.dropout.keyed(inputs.key)
        logits, targets = self._classified(weights, inputs.batch, dropout), inputs.batch["target_out"].T
        losses = token_losses(logits, targets, self.job.number("smoothing"))
        return jnp.sum(jnp.where(targets == spec.PAD, 0.0, losses)) / targets.shape[1]

    def infer(self, inputs: Inputs) -> Tensor:
        """Greedy tokens [B, T] of exactly the reference lengths, then PAD; EOS does not stop a sentence."""
        batch, steps = inputs.batch, inputs.batch["target_in"].shape[1]
        memory = self._memory(inputs.weights, batch, NO_DROPOUT)
        self.framework.observed.note(activations=memory.outputs)
        tokens = model.generate(inputs.weights, self.dims.layers, memory, steps)
        return jnp.where(jnp.arange(steps) < batch["target_lengths"][:, None], tokens, spec.PAD)

    def _logits(self, masters: Weights, batch: Batch) -> Tensor:
        """Logits [B, T, V] by teacher forcing, dropout off."""
        return self._classified(self._products(masters), batch, NO_DROPOUT).transpose((1, 0, 2))

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [real target positions, V], sentence after sentence, by teacher forcing, dropout off."""
        batch = self.framework.feed(self.data, index)
        logits = self.framework.array(self._outputs(self.local_masters(), batch))
        real: NDArray[Any] = logits[self.framework.array(batch["target_out"]) != spec.PAD]
        return real

    def _encoded(self, masters: Weights, batch: Batch) -> tuple[Weights, model.Memory, list[Tensor]]:
        """Weights, attention memory and first state for decoding ``batch`` step by step."""
        weights, layers = self._products(masters), self.dims.layers
        memory = self._memory(weights, batch, NO_DROPOUT)
        rows = len(batch["source"]) * int(self.job.hyper["beam"])
        return model.for_decoding(weights, layers), memory, model.start_of(memory, layers, rows)

    def decoder(self, arrays: Arrays) -> JaxDecoder:
        """A step-by-step decoder for ``source`` [n, S] with ``source_lengths`` [n]."""
        batch = {name: self.framework.tensor(arrays[name]) for name in ("source", "source_lengths")}
        weights, memory, state = self._encode(self.local_masters(), batch)
        return JaxDecoder(self._decode_step, weights, memory, state, int(self.job.hyper["beam"]))

    def predict(self, arrays: Arrays) -> Arrays:
        """Translations: ``tokens`` [n, L] int32 (read up to EOS) and ``index`` [n], the lines."""
        return beam.translations(self.decoder(arrays), arrays, self.job)
