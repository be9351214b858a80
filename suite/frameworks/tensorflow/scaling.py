"""Dynamic loss scaling for fp16 in TensorFlow, inside the function of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from suite.contract import Job
from suite.frameworks.common import NoScaling, Optimiser

Tensor = Any
GROWTH, BACKOFF = 2.0, 0.5


class LossScaling(NoScaling):
    """As in PyTorch: a step with non-finite gradients is skipped and halves the scale.

    After ``every`` consecutive steps without a skip the scale doubles. Keras's ``LossScaleOptimizer``
    computes the same, but works with Keras's optimisers only.
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
        grown = tf.where(grows, larger, tf.convert_to_tensor(self._scale))
        self._scale.assign(tf.where(finite, grown, self._scale * BACKOFF))
        self._good.assign(tf.where(good >= self._every, tf.zeros_like(good), good))
        self._skipped.assign_add(tf.cast(tf.logical_not(finite), tf.int64))

    def reset(self) -> None:
        """Restore the initial scale and a count of 0 skipped steps."""
        self._scale.assign(self._initial)
        self._good.assign(0)
        self._skipped.assign(0)

    def report(self) -> dict[str, float]:
        """The scale, and the steps skipped since the last reset; waits for the device."""
        return {"scale": float(self._scale.numpy()), "skipped": int(self._skipped.numpy())}


def scaling_of(job: Job) -> NoScaling:
    """The loss scaling of ``job``: dynamic for training in fp16, if its hyperparameters include it."""
    if job.key.precision != "fp16" or job.key.phase != "train" or "loss_scale" not in job.hyper:
        return NoScaling()
    return LossScaling(job.number("loss_scale"), int(job.hyper["loss_growth"]))
