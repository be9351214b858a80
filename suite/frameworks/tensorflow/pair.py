"""The base of every pair in TensorFlow. It owns weights, steps and updates; workloads add model and loss."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias

import tensorflow as tf
from numpy.typing import NDArray

from suite.contract import Data, Job
from suite.frameworks import base
from suite.frameworks.base import Arrays
from suite.frameworks.tensorflow import layers
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
from suite.frameworks.tensorflow.scaling import Optimiser

Loss: TypeAlias = "Tensor | tuple[Tensor, Any]"


class BasePair(base.BasePair):
    """See :class:`suite.contract.Pair`. Masters have the type of the parameters (float32, in tests float64).

    ``masters`` are all weights by canonical name, ``trained`` those of them that are updated. ``state`` are
    the variables beside them that steps change (running statistics, a recurrent state). In inference
    ``stored`` are the weights in the type of the arithmetic. One traced function computes a whole step.
    """

    framework: Framework
    masters: dict[str, Any]
    optimiser: Optimiser | None
    stored: dict[str, Any]
    channels_last = False  # weights lie on the device as ``layers.stored`` says
    dropout: Any = None  # a Dropout, whose ``seed`` is another one in each step

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        super().__init__(job, framework, data)
        self.state: list[Any] = []
        self.build()
        self.masters = {
            name: tf.Variable(self._laid_out(array), trainable=name not in self.frozen)
            for name, array in self.initial_weights()
        }
        self.trained = {name: master for name, master in self.masters.items() if name not in self.frozen}
        self._initial_state = [variable.numpy() for variable in self.state]
        self._updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._results = framework.results()
        self._gradients = framework.make_fast(lambda batch: self.differentiate(batch)[1])
        if self.training:
            self._clip = float(job.hyper.get("clip", "0"))
            self.optimiser = self.make_optimiser()
            self._run = framework.make_fast(self.update)
        else:
            found = self.inference_weights()
            self.stored = {name: tf.Variable(value, trainable=False) for name, value in found.items()}
            framework.observed.note(weights=next(iter(self.stored.values())))
            self._run = framework.make_fast(self.infer)
        self.observe()
        self.run_each_shape()

    # ---- what a workload's pair supplies -----------------------------------------------------------------
    def loss(self, batch: Batch) -> Loss:
        """The training loss, a scalar, divided as the specification says; beside it what :meth:`carry` takes.

        A pair that replaces :meth:`update` and :meth:`gradients` has none.
        """
        raise NotImplementedError(f"{type(self).__module__}: expected a method loss, found none")

    @abstractmethod
    def infer(self, batch: Batch) -> Tensor:
        """The output of one inference batch, from ``stored``."""

    # ---- what it may override ----------------------------------------------------------------------------
    def inference_weights(self) -> dict[str, Tensor]:
        """The weights of inference, in the type of the arithmetic."""
        return self.cast()

    def make_optimiser(self) -> Optimiser:
        """The optimiser that the hyperparameters describe, over the trained masters."""
        hyper, trained = self.job.hyper, list(self.trained.values())
        if "beta1" in hyper:
            return Adam(trained, hyper)
        if "momentum" in hyper:
            decayed = self.decayed()
            return Momentum(trained, hyper, [at for at, name in enumerate(self.trained) if name in decayed])
        return Descent(trained)

    # ---- what it may use ---------------------------------------------------------------------------------
    def cast(self) -> dict[str, Tensor]:
        """The masters in the type of the arithmetic."""
        return {name: self.framework.compute(master) for name, master in self.masters.items()}

    def read(self) -> dict[str, Tensor]:
        """The values of ``stored``, each read once: a loop would read a variable in every turn."""
        return {name: tf.convert_to_tensor(value) for name, value in self.stored.items()}

    # ---- a step ------------------------------------------------------------------------------------------
    def run(self, batch: Batch, slot: int | None) -> Tensor:
        """One step by the traced function of the batch's shapes."""
        return self._run(batch, slot)

    def update(self, batch: Batch) -> Tensor:
        """One update by the gradient of ``batch``; the loss, or [loss, norm] where ``keeps_norm``."""
        loss, gradients, carried = self.differentiate(batch)
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
        """The loss of ``batch``, its gradient by every trained master, and what :meth:`carry` takes."""
        if self.dropout is not None:
            self.dropout.seed = tf.stack((tf.constant(self.job.seed % 2**40, tf.int64), self._updates))
        with tf.GradientTape() as tape:
            found = self.loss(batch)
            loss, carried = found if isinstance(found, tuple) else (found, None)
            scaled = self.framework.scaling.scaled(loss)
        return loss, self.differentiate_and_exchange(tape, scaled), carried

    def differentiate_and_exchange(self, tape: tf.GradientTape, scaled: Tensor) -> list[Tensor]:
        """The gradient of the loss by every trained master, in their order, from its ``scaled`` form.

        Dense: that of a table comes as rows.
        """
        found = []
        gradients = tape.gradient(scaled, list(self.trained.values()))
        for name, gradient in zip(self.trained, gradients, strict=True):
            if gradient is None:
                raise RuntimeError(f"{self.spec.NAME}: expected a gradient for {name}, found none")
            found.append(tf.convert_to_tensor(gradient))
        self.framework.observed.note(weights=self.trained[name], gradients=found[0])
        return self.framework.scaling.unscaled(found)

    # ---- the rest of the contract ------------------------------------------------------------------------
    def restore(self) -> None:
        """Initial weights, state, optimiser and loss scaling, in place; dropout from its start."""
        for variable, value in zip(self.state, self._initial_state, strict=True):
            variable.assign(value)
        if self.optimiser is None:  # inference changes no weight
            return
        for name, array in self.initial_weights():
            self.masters[name].assign(self._laid_out(array))
        self.optimiser.reset()
        self.framework.scaling.reset()
        self._updates.assign(0)

    def parameters(self) -> Arrays:
        """Masters by canonical name, then what is fixed."""
        found = {name: self._canonical(master) for name, master in self.masters.items()}
        return found | self.fixed_parameters()

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name, without weight decay; 0 where frozen."""
        gradients = self._gradients(self.framework.feed(self.data, index), None)
        found = dict(zip(self.trained, gradients, strict=True))
        return {
            name: self._canonical(found[name] if name in found else tf.zeros_like(master))
            for name, master in self.masters.items()
        }

    def _laid_out(self, array: NDArray[Any]) -> Tensor:
        return self.framework.tensor(layers.stored(array) if self.channels_last else array)

    def _canonical(self, tensor: Tensor) -> NDArray[Any]:
        array = self.framework.array(tensor)
        return layers.canonical(array) if self.channels_last else array
