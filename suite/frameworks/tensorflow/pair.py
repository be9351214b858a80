"""Base class of every pair in TensorFlow: weights, steps and updates; a workload adds model and loss."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from suite.common import channels_last
from suite.contract import Data, Job, LostRank
from suite.frameworks import base
from suite.frameworks.base import Arrays
from suite.frameworks.common import Optimiser
from suite.frameworks.tensorflow.exchange import lost_rank
from suite.frameworks.tensorflow.framework import (
    Adam,
    Batch,
    Descent,
    Framework,
    Momentum,
    Tensor,
    clip_by_global_norm,
    global_norm,
)


class BasePair(base.BasePair):
    """See :class:`suite.contract.Pair`. Masters have the type of the parameters (float32, in tests float64).

    ``masters`` holds all weights by canonical name, ``trained`` those that are updated, ``state`` the other
    variables that steps change (running statistics, a recurrent state). In inference ``stored`` holds the
    weights in the compute type. One traced function computes a whole step.
    """

    framework: Framework
    masters: dict[str, Any]
    optimiser: Optimiser | None
    stored: dict[str, Any]
    channels_last = False  # weights have the layout of ``channels_last.stored`` on the device
    dropout: Any = None  # a Dropout; its ``seed`` changes with each step

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        super().__init__(job, framework, data)
        self.state: list[Any] = []
        self.build()
        self.masters = {
            name: tf.Variable(self.stored_layout(array), trainable=name not in self.frozen)
            for name, array in self.starting_weights()
        }
        self.trained = {name: master for name, master in self.masters.items() if name not in self.frozen}
        self._initial_state = [variable.numpy() for variable in self.state]
        # A variable: as a constant it would be part of the program, and each repeat has another seed.
        self._seed = tf.Variable(framework.seed % 2**40, dtype=tf.int64, trainable=False)
        self._updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._results = framework.results()
        self._differentiate = framework.part(self.differentiate)
        self._gradients = framework.make_fast(
            lambda batch: self.exchange(self._differentiate(batch)[1]), exchanges=True
        )
        if self.training:
            self._clip = float(job.hyper.get("clip", "0")) if job.key.updates else 0.0
            self.optimiser = self.make_optimiser() if job.key.updates else None
            self._apply = framework.part(self.apply)
            self._run = framework.make_fast(self.update, exchanges=True)
        else:
            self.stored = {
                name: tf.Variable(value, trainable=False) for name, value in self.inference_weights().items()
            }
            framework.observed.note(weights=next(iter(self.stored.values())))
            self._run = framework.make_fast(self.infer)
        self.observe()

    # ---- members that a workload's pair supplies or overrides ------------------------------------------
    @abstractmethod
    def infer(self, batch: Batch) -> Tensor:
        """The output of one inference batch, from ``stored``."""

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of inference, in the compute type."""
        return self.cast()

    def make_optimiser(self) -> Optimiser:
        """The optimiser that the hyperparameters describe, over the trained masters."""
        return self.choose_optimiser(Adam, Momentum, Descent)

    def cast(self) -> dict[str, Tensor]:
        """The masters in the compute type."""
        return {name: self.framework.compute(master) for name, master in self.masters.items()}

    def read(self) -> dict[str, Tensor]:
        """The values of ``stored``, each read once: a loop would read a variable in every iteration."""
        return {name: tf.convert_to_tensor(value) for name, value in self.stored.items()}

    # ---- a step ----------------------------------------------------------------------------------------
    def run(self, batch: Batch, slot: int | None) -> Tensor:
        """One step by the traced function of the batch's shapes."""
        return self._run(batch, slot)

    def update(self, batch: Batch) -> Tensor:
        """One update by the gradient of ``batch``; the loss, or [loss, norm] where ``keeps_norm``.

        Without an optimiser it computes the gradient and updates nothing (scenario ``forward_backward``).
        With several ranks the gradient is that of the global batch, and the loss is the rank's share of it.
        """
        loss, gradients, carried = self._differentiate(batch)
        return self._apply(loss, self.exchange(gradients), carried)

    def apply(self, loss: Tensor, gradients: list[Tensor], carried: Any) -> Tensor:
        """Clip ``gradients``, update, and store ``carried``; returns the result of :meth:`update`."""
        if self.job.world_size > 1:
            loss = loss / self.job.world_size
        norm = None
        if self._clip:
            gradients, norm = clip_by_global_norm(gradients, self._clip)
        elif self.keeps_norm:
            norm = global_norm(gradients)
        if self.optimiser is not None:
            self.framework.scaling.update(self.optimiser, gradients)
        if carried is not None:
            self.carry(carried)
        if self.dropout is not None:
            self._updates.assign_add(1)
        return tf.stack((loss, norm)) if self.keeps_norm else loss

    def differentiate(self, batch: Batch) -> tuple[Tensor, list[Tensor], Any]:
        """The loss of ``batch``, the rank's gradients of the scaled loss, and the input of ``carry``."""
        if self.dropout is not None:
            self.dropout.seed = tf.stack((self._seed, self._updates))
        with tf.GradientTape() as tape:
            loss = self.loss(batch)
            loss, carried = loss if isinstance(loss, tuple) else (loss, None)
            scaled = self.framework.scaling.scaled(loss)
        return loss, self._dense_gradients(tape, scaled), carried

    def _dense_gradients(self, tape: tf.GradientTape, scaled: Tensor) -> list[Tensor]:
        """The gradient of ``scaled`` by every trained master, in their order.

        All are dense; the tape's gradient of a table is sparse.
        """
        dense = []
        gradients = tape.gradient(scaled, list(self.trained.values()))
        for name, gradient in zip(self.trained, gradients, strict=True):
            if gradient is None:
                raise RuntimeError(f"{self.spec.NAME}: expected a gradient for {name}, found none")
            dense.append(tf.convert_to_tensor(gradient))
        self.framework.observed.note(weights=self.trained[name], gradients=dense[0])
        return dense

    def exchange(self, gradients: list[Tensor]) -> list[Tensor]:
        """``gradients`` of the scaled loss, averaged over the ranks, as gradients of the loss.

        All ranks have equally many rows: the average of their means is the mean over the global batch.
        """
        return self.framework.scaling.unscaled(self.framework.exchange.averaged(gradients))

    # ---- members of suite.contract.Pair ----------------------------------------------------------------
    def step(self, index: int) -> None:
        """One update (train) or one batch of outputs (infer); LostRank if an exchange fails."""
        try:
            super().step(index)
        except tf.errors.OpError as error:
            if self.framework.exchange.active and lost_rank(error):
                raise LostRank(str(error)) from error
            raise

    def restore(self) -> None:
        """Restore initial weights, state, optimiser, loss scaling and dropout's seed, in place."""
        for variable, value in zip(self.state, self._initial_state, strict=True):
            variable.assign(value)
        self._updates.assign(0)
        if self.optimiser is None:  # no weight has changed
            return
        for name, array in self.starting_weights():
            self.masters[name].assign(self.stored_layout(array))
        self.optimiser.reset()
        self.framework.scaling.reset()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name, without weight decay; 0 where frozen."""
        return self.by_name(self._gradients(self.framework.feed(self.data, index), None))

    def stored_layout(self, array: NDArray[Any]) -> Tensor:
        """``array``, a weight in canonical layout, on the device in the layout of the masters."""
        return self.framework.tensor(channels_last.stored(array) if self.channels_last else array)

    def canonical(self, tensor: Tensor) -> NDArray[Any]:
        """See :class:`suite.frameworks.base.BasePair`."""
        array = self.framework.array(tensor)
        return channels_last.canonical(array) if self.channels_last else array
