"""The LSTM language model in TensorFlow. Sequences are time-major inside, [T, B, H]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from suite.frameworks.tensorflow import Batch, Descent, Framework, clip_by_global_norm
from suite.frameworks.tensorflow_recurrent import NO_DROPOUT, Dropout, lstm
from suite.workloads import weights as initial_weights
from suite.workloads.clipped import ClippedSteps
from suite.workloads.contract import Data, Job
from suite.workloads.lstm_ptb import spec
from suite.workloads.lstm_ptb.data import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

Tensor = Any
Weights = dict[str, Tensor]


def run_layers(weights: Weights, tokens: Tensor, state: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
    """Inputs [T, B, H] of the softmax for ``tokens`` [B, T], and the state moved on.

    ``state`` is [layers, 2, B, H], hidden and cell. Dropout sits between layers, never between steps.
    """
    values = tf.gather(weights["embedding"], tf.transpose(tokens))
    moved = []
    for layer in range(state.shape[0]):
        name = f"lstm.{layer}"
        kernel, recurrent, bias = (weights[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
        start = state[layer, 0], state[layer, 1]
        values, last = lstm(dropout(name, values), kernel, recurrent, bias, start)
        moved.append(tf.stack(last))
    return dropout("softmax", values), tf.stack(moved)


def classify(weights: Weights, hidden: Tensor) -> Tensor:
    """Logits [T, B, V]."""
    return tf.tensordot(hidden, weights["softmax.weight"], axes=((-1,), (1,))) + weights["softmax.bias"]


class Pair(ClippedSteps):
    """See :class:`suite.workloads.contract.Pair`. Masters are fp32; a step casts them for its arithmetic."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.dims = spec.dimensions(job.key.scale, job.key.variant)
        self.train = job.key.phase == "train"
        self._counter = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.dropout = Dropout(job.number("dropout"))
        self._masters = {name: tf.Variable(framework.tensor(array)) for name, array in self._initial()}
        self._state = tf.Variable(self._zero_state(job.key.batch), trainable=False)
        self._results = framework.results()
        self._norms = []
        self._differentiate = framework.make_fast(lambda batch: self._gradients(batch)[1])
        self._outputs = framework.make_fast(self._logits)
        self._follow = framework.make_fast(self._window)
        if self.train:
            self._descent = Descent(list(self._masters.values()))
            self._run = framework.make_fast(self._update)
        else:
            self._frozen = {name: tf.Variable(value, trainable=False) for name, value in self._cast().items()}
            framework.observed.note(weights=self._frozen["embedding"])
            self._run = framework.make_fast(self._infer)

    def _initial(self) -> Any:
        return initial_weights.initial(spec.NAME, spec.parameters(self.dims))

    def _zero_state(self, batch: int) -> Tensor:
        return tf.zeros((self.dims.layers, 2, batch, self.dims.hidden), self.framework.compute_dtype)

    def _cast(self) -> Weights:
        """The weights in the type of the arithmetic."""
        return {name: self.framework.compute(master) for name, master in self._masters.items()}

    def _score(
        self, weights: Weights, batch: Batch, state: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor]:
        """Losses [T, B] of a batch, in fp32 where logits are half-precision, and the state behind it."""
        hidden, moved = run_layers(weights, batch["inputs"], state, dropout)
        self.framework.observed.note(activations=hidden)
        logits = tf.cast(classify(weights, hidden), self.framework.dtype)
        targets = tf.transpose(batch["targets"])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits), moved

    def _gradients(self, batch: Batch) -> tuple[Tensor, list[Tensor], Tensor]:
        """Loss (a sum over steps, a mean over rows), its gradients, and the state moved on."""
        self.dropout.seed = tf.stack((tf.constant(self.job.seed % 2**40, tf.int64), self._counter))
        scaling = self.framework.scaling
        with tf.GradientTape() as tape:
            losses, moved = self._score(self._cast(), batch, self._state, self.dropout)
            loss = tf.reduce_sum(losses) / losses.shape[1]
            scaled = scaling.scaled(loss)
        gradients = scaling.unscaled(tape.gradient(scaled, list(self._masters.values())))
        self.framework.observed.note(weights=self._masters["embedding"], gradients=gradients[0])
        return loss, gradients, moved

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients, moved = self._gradients(batch)
        clipped, norm = clip_by_global_norm(gradients, self.job.number("clip"))
        self.framework.scaling.update(self._descent, clipped)
        self._state.assign(moved)
        self._counter.assign_add(1)
        return tf.stack((loss, norm))

    def _infer(self, batch: Batch) -> Tensor:
        """Negative log likelihoods [B, T]."""
        weights = {name: tf.convert_to_tensor(value) for name, value in self._frozen.items()}
        losses, moved = self._score(weights, batch, self._state, NO_DROPOUT)
        self._state.assign(moved)
        return tf.transpose(losses)

    def _logits(self, batch: Batch) -> Tensor:
        weights = self._cast()
        return classify(weights, run_layers(weights, batch["inputs"], self._state, NO_DROPOUT)[0])

    def _window(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Losses [T] of one row, and the state behind them; the state before is part of ``batch``."""
        losses, moved = self._score(self._cast(), batch, batch["state"], NO_DROPOUT)
        return losses[:, 0], moved

    def step(self, index: int) -> None:
        """See the contract; the first step of an epoch starts from a zero state."""
        batch = self.framework.feed(self.data, index)
        if index % self.data.steps_per_epoch == 0:
            self._state.assign(tf.zeros_like(self._state))
        if self.train:
            self._descent.set_rate(spec.rate_of(self.job.hyper, index, self.data.steps_per_epoch))
        self._results.keep(self._run(batch, self.data.slot(index)))

    def reset(self) -> None:
        """See the contract; the carried state and the dropout stream start again too."""
        self._norms.clear()
        self._state.assign(tf.zeros_like(self._state))
        if not self.train:
            return
        for name, array in self._initial():
            self._masters[name].assign(self.framework.tensor(array))
        self.framework.scaling.reset()
        self._counter.assign(0)

    def parameters(self) -> Arrays:
        """See the contract."""
        return {name: self.framework.array(master) for name, master in self._masters.items()}

    def gradients(self, index: int) -> Arrays:
        """See the contract; from the carried state, which stays as it is."""
        gradients = self._differentiate(self.framework.feed(self.data, index), None)
        return {name: self.framework.array(g) for name, g in zip(self._masters, gradients, strict=True)}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [T, B, V], dropout off, from the carried state, which stays as it is."""
        return self.framework.array(self._outputs(self.framework.feed(self.data, index), None))

    def predict(self, arrays: Arrays) -> Arrays:
        """``nll`` [n - 1], the negative log likelihood of every token but the first, from a zero state."""
        state, found = self._zero_state(1), []
        for window in windows(arrays["tokens"], self.dims.steps):
            batch = {name: self.framework.tensor(array) for name, array in window.items()}
            losses, state = self._follow({**batch, "state": state}, None)
            found.append(losses)
        return {"nll": self.framework.array(tf.concat(found, axis=0))[: len(arrays["tokens"]) - 1]}
