"""NeuMF as a user would write it in TensorFlow: Keras's Embedding, Dense and Adam."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from peers.plain import Plain
from peers.tensorflow_common import Batch, plain, staged, start, trained
from suite.contract import Job
from suite.workloads.ncf import spec


def network(dims: spec.Dimensions) -> Any:
    """Users [B] and items [B] to logits [B, 1]."""
    users, items = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    product = layers.Multiply()(
        [layers.Embedding(dims.users, dims.factors)(users), layers.Embedding(dims.items, dims.factors)(items)]
    )
    hidden: Any = layers.Concatenate()(
        [layers.Embedding(dims.users, dims.half)(users), layers.Embedding(dims.items, dims.half)(items)]
    )
    for outputs in dims.layers[1:]:
        hidden = layers.Dense(outputs, activation="relu")(hidden)
    logits = layers.Dense(1, dtype="float32")(layers.Concatenate()([product, hidden]))
    return keras.Model([users, items], logits)


def make(job: Job) -> Plain:
    """Training or scoring."""
    start(job)
    batch_of = staged(job)
    model = network(spec.dimensions(job.key.scale, job.key.variant))
    lossy = keras.losses.BinaryCrossentropy(from_logits=True)

    def loss_of(batch: Batch) -> Any:
        return lossy(batch["labels"][:, None], model([batch["users"], batch["items"]], training=True))

    if job.key.phase == "train":
        train = trained(model, keras.optimizers.Adam(1e-3), loss_of)
        return plain(model, lambda index: train(batch_of(index)))
    infer = tf.function(lambda batch: tf.sigmoid(model([batch["users"], batch["items"]], training=False)))
    return plain(model, lambda index: infer(batch_of(index)))
