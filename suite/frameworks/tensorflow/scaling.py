"""Dynamic loss scaling for fp16 in TensorFlow, inside the function of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from suite.contract import Job
from suite.frameworks.common import NoScaling

Tensor = Any
GROWTH, BACKOFF = 2.0, 0.5


class Optimiser(Protocol):
    """What updates the parameters."""

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next update; call it outside the fast step."""

    def reset(self) -> None:
        """As if no update had been."""

    def update(self, gradients: Sequence[Tensor]) -> None:
        """One update in place."""


class LossScaling(NoScaling):
    """The same as in PyTorch: a step whose gradients are not all finite is skipped and halves the scale.

    After ``every`` steps in a row without a skip the scale doubles. Keras's ``LossScaleOptimizer`` differs in
    nothing that matters here, but belongs to Keras's own optimisers.
    """

    def __init__(self, initial: float, every: int) -> None:
        self._initial, self._every = initial, every
        self._scale = tf.Variable(initial, dtype=tf.float32, trainable=False)
        self._good = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._skipped = tf.Variable(0, dtype=tf.int64, trainable=False)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        return loss * tf.cast(self._scale, loss.dtype)

    def unscaled(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients divided by the scale."""
        return [gradient / tf.cast(self._scale, gradient.dtype) for gradient in gradients]

    def update(self, optimiser: Optimiser, gradients: Sequence[Tensor]) -> None:
        """One update, skipped where one of ``gradients`` is not finite; then the next scale."""
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def updated() -> Tensor:
            optimiser.update(gradients)
            return tf.constant(True)

        tf.cond(finite, updated, lambda: tf.constant(False))
        good = tf.where(finite, self._good + 1, tf.zeros_like(self._good))
        larger = self._scale * GROWTH
        grows = tf.logical_and(good >= self._every, tf.math.is_finite(larger))
        kept = tf.where(grows, larger, tf.convert_to_tensor(self._scale))
        self._scale.assign(tf.where(finite, kept, self._scale * BACKOFF))
        self._good.assign(tf.where(good >= self._every, tf.zeros_like(good), good))
        self._skipped.assign_add(tf.cast(tf.logical_not(finite), tf.int64))

    def reset(self) -> None:
        """The initial scale, and nothing skipped."""
        self._scale.assign(self._initial)
        self._good.assign(0)
        self._skipped.assign(0)

    def report(self) -> dict[str, float]:
        """The scale, and the steps skipped since the last reset; waits for the device."""
        return {"scale": float(self._scale.numpy()), "skipped": int(self._skipped.numpy())}


def scaling_of(job: Job) -> NoScaling:
    """The loss scaling of ``job``: for training in fp16, where the workload has one (word2vec needs none)."""
    if job.key.precision != "fp16" or job.key.phase != "train" or "loss_scale" not in job.hyper:
        return NoScaling()
    return LossScaling(job.number("loss_scale"), int(job.hyper["loss_growth"]))
