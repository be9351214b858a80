"""Shared code of the plain TensorFlow scripts: threads, the suite's batches, a traced training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from peers.plain import Plain
from suite import workloads
from suite.contract import Job

Batch = dict[str, Any]


def start(job: Job) -> None:
    """Set the threads and Keras's mixed-precision policy."""
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.mixed_precision.set_global_policy("mixed_bfloat16" if job.key.precision == "bf16" else "float32")


def staged(job: Job) -> Callable[[int], Batch]:
    """The suite's synthetic batches as tensors, made once."""
    data = workloads.open_data(job)
    cached: dict[int | None, Batch] = {}

    def batch(step: int) -> Batch:
        slot = data.slot(step)
        if slot is None or slot not in cached:
            cached[slot] = {name: tf.convert_to_tensor(value) for name, value in data.batch(step).items()}
        return cached[slot]

    return batch


def trained(model: Any, optimizer: Any, loss_of: Callable[[Batch], Any]) -> Callable[[Batch], Any]:
    """One update in a ``tf.function``: the loop of TensorFlow's guides."""

    @tf.function
    def train(batch: Batch) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(batch)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return train


def plain(model: Any, step: Callable[[int], Any]) -> Plain:
    """The script for the timing loop. On a CPU a function has completed when its call returns."""
    step(0)
    count = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    return Plain(step, lambda found: tf.cast(found, tf.float32).numpy(), lambda: None, count)
