"""The pair gnmt / tensorflow: a training loop of its own, decoding, and the views for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from suite.frameworks.tensorflow import Adam, Batch, Framework, clip_by_global_norm
from suite.frameworks.tensorflow_recurrent import NO_DROPOUT, Dropout
from suite.workloads import weights as initial_weights
from suite.workloads.clipped import ClippedSteps
from suite.workloads.contract import Data, Job
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import tensorflow_model as model
from suite.workloads.gnmt.data import first_of_each_shape
from suite.workloads.gnmt.tensorflow_beam import TensorflowDecoder, scores_and_state

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

Tensor = Any


class Pair(ClippedSteps):
    """See :class:`suite.workloads.contract.Pair`. Masters are fp32; a step casts them for its arithmetic."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.dims = spec.dimensions(job.key.scale, job.key.variant)
        self.train = job.key.phase == "train"
        self._counter = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.dropout = Dropout(job.number("dropout"))
        self._masters = {name: tf.Variable(framework.tensor(array)) for name, array in self._initial()}
        self._results = framework.results()
        self._norms = []
        self._differentiate = framework.make_fast(lambda batch: self._gradients(batch)[1])
        self._outputs = framework.make_fast(self._logits)
        self._encode = framework.make_fast(self._remember)
        self._decode_step = tf.function(scores_and_state, autograph=False, jit_compile=framework.cuda)
        if self.train:
            self._adam = Adam(list(self._masters.values()), job.hyper)
            self._run = framework.make_fast(self._update, [*self._masters.values(), *self._adam.state])
        else:
            frozen = self._cast() if framework.cuda else model.turned(self._cast())
            self._frozen = {name: tf.Variable(value, trainable=False) for name, value in frozen.items()}
            self._run = framework.make_fast(self._decode)
            self._observe()
        if job.mode == "throughput":
            self._compile()

    def _initial(self) -> Any:
        return initial_weights.initial(spec.NAME, spec.parameters(self.dims))

    def _cast(self) -> dict[str, Tensor]:
        """The weights in the type of the arithmetic."""
        return {name: self.framework.compute(master) for name, master in self._masters.items()}

    def _observe(self) -> None:
        """Note the types of one encoded token: a decoding step shows nothing but token ids."""
        weights = {name: tf.convert_to_tensor(value) for name, value in self._frozen.items()}
        token, length = tf.constant([[spec.BOS]]), tf.constant([1])
        found = model.encode(weights, self.dims.layers, token, length, NO_DROPOUT)
        self.framework.observed.note(weights=weights["embedding"], activations=found)

    def _hidden(self, weights: dict[str, Tensor], batch: Batch, dropout: Dropout) -> Tensor:
        """Decoder outputs [T, B, H] by teacher forcing."""
        lengths, layers = batch["source_lengths"], self.dims.layers
        outputs = model.encode(weights, layers, batch["source"], lengths, dropout)
        memory = model.Memory.of(weights, outputs, lengths)
        return model.decode(weights, layers, batch["target_in"], memory, dropout)

    def _loss(self, batch: Batch) -> Tensor:
        """Smoothed cross entropy over real positions, divided by the number of sentences."""
        weights = self._cast()
        self.dropout.seed = tf.stack((tf.constant(self.job.seed % 2**40, tf.int64), self._counter))
        hidden = self._hidden(weights, batch, self.dropout)
        logits, targets = model.classify(weights, hidden), tf.transpose(batch["target_out"])
        self.framework.observed.note(weights=self._masters["embedding"], activations=hidden)
        smoothing = self.job.number("smoothing")
        total = model.smoothed_loss(logits, targets, smoothing, self.framework.dtype)
        return total / batch["source"].shape[0]

    def _gradients(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        scaling = self.framework.scaling
        with tf.GradientTape() as tape:
            loss = self._loss(batch)
            scaled = scaling.scaled(loss)
        gradients = scaling.unscaled(tape.gradient(scaled, list(self._masters.values())))
        self.framework.observed.note(gradients=gradients[0])
        return loss, gradients

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients = self._gradients(batch)
        clipped, norm = clip_by_global_norm(gradients, self.job.number("clip"))
        self.framework.scaling.update(self._adam, clipped)
        self._counter.assign_add(1)
        return tf.stack((loss, norm))

    def _decode(self, batch: Batch) -> Tensor:
        """Greedy tokens [B, T] of exactly the reference lengths, PAD behind; EOS does not stop a sentence."""
        source, lengths = batch["source"], batch["source_lengths"]
        steps = batch["target_in"].shape[1]
        weights = {name: tf.convert_to_tensor(value) for name, value in self._frozen.items()}
        tokens = model.generate(weights, self.dims.layers, source, lengths, steps)
        return tf.where(tf.sequence_mask(batch["target_lengths"], steps), tokens, spec.PAD)

    def _logits(self, batch: Batch) -> Tensor:
        """Logits [B, T, V] by teacher forcing, dropout off."""
        weights = self._cast()
        logits = model.classify(weights, self._hidden(weights, batch, NO_DROPOUT))
        return tf.transpose(logits, (1, 0, 2))

    def _remember(self, batch: Batch) -> list[Tensor]:
        """The fields of the memory of a batch's sources."""
        weights, lengths = self._cast(), batch["source_lengths"]
        outputs = model.encode(weights, self.dims.layers, batch["source"], lengths, NO_DROPOUT)
        memory = model.Memory.of(weights, outputs, lengths)
        return [memory.outputs, memory.keys, memory.vector, memory.padding]

    def _compile(self) -> None:
        """Run one step of each shape of batches that are read; the worker does so for staged ones."""
        for index in first_of_each_shape(self.data):
            self.step(index)
        if self.collect():
            self.reset()

    def step(self, index: int) -> None:
        """See the contract."""
        batch = self.framework.feed(self.data, index)
        if self.train:
            self._adam.set_rate(spec.learning_rate(self.job.hyper, index))
        self._results.keep(self._run(batch, self.data.slot(index)))

    def reset(self) -> None:
        """See the contract; the dropout stream starts again too."""
        self._norms.clear()
        if not self.train:
            return
        for name, array in self._initial():
            self._masters[name].assign(self.framework.tensor(array))
        self._adam.reset()
        self.framework.scaling.reset()
        self._counter.assign(0)

    def parameters(self) -> Arrays:
        """See the contract."""
        return {name: self.framework.array(master) for name, master in self._masters.items()}

    def gradients(self, index: int) -> Arrays:
        """See the contract."""
        gradients = self._differentiate(self.framework.feed(self.data, index), None)
        names = self._masters
        return {name: self.framework.array(g) for name, g in zip(names, gradients, strict=True)}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [real target positions, V], sentence after sentence, by teacher forcing, dropout off."""
        batch = self.framework.feed(self.data, index)
        logits = self.framework.array(self._outputs(batch, None))
        real: NDArray[Any] = logits[self.framework.array(batch["target_out"]) != spec.PAD]
        return real

    def decoder(self, arrays: Arrays) -> TensorflowDecoder:
        """Single steps of the decoder over ``source`` [n, S] with ``source_lengths`` [n]."""
        batch = {name: self.framework.tensor(arrays[name]) for name in ("source", "source_lengths")}
        memory, beams = self._encode(batch, None), int(self.job.hyper["beam"])
        return TensorflowDecoder(self._decode_step, self._cast(), memory, self.dims.layers, beams)

    def predict(self, arrays: Arrays) -> Arrays:
        """Translations: ``tokens`` [n, L] int32 (read up to EOS) and ``index`` [n], the lines."""
        sentences, width = arrays["source"].shape
        rules = beam.Rules.of(self.job.hyper, spec.decoding_limit(self.job.key.scale, width))
        return {"tokens": beam.search(self.decoder(arrays), sentences, rules), "index": arrays["index"]}
