"""The LSTM language model as a user would write it in TensorFlow: ``keras.layers.LSTM``, clipping, SGD."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from peers.plain import Plain
from peers.tensorflow_common import Batch, plain, staged, start
from suite.contract import Job
from suite.workloads.lstm_ptb import spec


def network(dims: spec.Dimensions, batch: int, dropout: float) -> Any:
    """Tokens [B, T] to logits [B, T, V]; ``stateful``: the state is carried from call to call."""
    uniform = keras.initializers.RandomUniform(-float(dims.spread), float(dims.spread))
    stack: list[Any] = [keras.Input(batch_shape=(batch, dims.steps), dtype="int32")]
    stack += [layers.Embedding(dims.vocabulary, dims.hidden, embeddings_initializer=uniform)]
    for _ in range(dims.layers):
        stack += [layers.Dropout(dropout)]
        stack += [layers.LSTM(dims.hidden, return_sequences=True, stateful=True, kernel_initializer=uniform)]
    return keras.Sequential([*stack, layers.Dropout(dropout), layers.Dense(dims.vocabulary)])


def make(job: Job) -> Plain:
    """Training with the state carried on, or negative log likelihoods."""
    start(job)
    batch_of = staged(job)
    dims = spec.dimensions(job.key.scale, job.key.variant)
    model = network(dims, job.key.batch, job.number("dropout"))
    sgd = keras.optimizers.SGD(1.0, global_clipnorm=job.number("clip"))

    def losses(batch: Batch, training: bool) -> Any:
        logits = tf.cast(model(batch["inputs"], training=training), tf.float32)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch["targets"], logits)

    @tf.function
    def train(batch: Batch) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses(batch, True)) / job.key.batch
        variables = model.trainable_variables
        sgd.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    infer = tf.function(lambda batch: losses(batch, False))
    step = train if job.key.phase == "train" else infer
    return plain(model, lambda index: step(batch_of(index)))
