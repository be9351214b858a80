"""Image classifiers as a user would write them in TensorFlow: Keras models, ``tf.function``, Keras's SGD.

VGG-16 and Inception v3 are those of ``keras.applications``. Its ResNets have the stride in the first
convolution (6 % less work), so here is version 1.5 in the same layers; it has no AlexNet.

Differences to the suite: ``keras.applications`` has no dropout, and its Inception v3 no scale in the
normalisation; no label smoothing; weight decay is that of Keras's SGD, on the same kernels but taken off the
weights instead of added to the gradients; inference normalises by running statistics instead of folding
them.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from peers.plain import Plain
from peers.tensorflow_common import Batch, plain, staged, start, trained
from suite import workloads
from suite.contract import Job

BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet152": (3, 8, 36, 3), "resnet50_cifar10": (3, 4, 6, 3)}


def network(workload: str) -> Any:
    """The stock network at its published size; images [N, H, W, 3] to logits."""
    if workload in BLOCKS:
        return resnet(BLOCKS[workload], workload.endswith("cifar10"))
    if workload == "alexnet":
        return alexnet()
    stock = {"vgg16": keras.applications.VGG16, "inception_v3": keras.applications.InceptionV3}
    return stock[workload](weights=None, classifier_activation=None)


def unit(x: Any, outputs: int, kernel: int, stride: int = 1, relu: bool = True) -> Any:
    """Convolution, normalisation, ReLU; padded alike on all sides."""
    if kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2)(x)
    x = layers.Conv2D(outputs, kernel, stride, use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    return layers.ReLU()(x) if relu else x


def resnet(blocks: tuple[int, ...], small: bool) -> Any:
    """ResNet v1.5; ``small``: the stem for images of 32 pixels."""
    images = keras.Input((32, 32, 3) if small else (224, 224, 3))
    x = unit(images, 64, 3) if small else unit(images, 64, 7, 2)
    if not small:
        x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride, width = (2 if stage and not block else 1), 64 << stage
            shortcut = x if block else unit(x, 4 * width, 1, stride, relu=False)
            y = unit(unit(x, width, 1), width, 3, stride)
            x = layers.ReLU()(layers.Add()([unit(y, 4 * width, 1, relu=False), shortcut]))
    logits = layers.Dense(10 if small else 1000)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, logits)


def alexnet() -> Any:
    """The AlexNet of "One weird trick"."""
    return keras.Sequential(
        [
            keras.Input((224, 224, 3)),
            layers.ZeroPadding2D(2),
            layers.Conv2D(64, 11, 4, activation="relu"),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(192, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(384, 3, padding="same", activation="relu"),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(3, 2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(4096, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(4096, activation="relu"),
            layers.Dense(1000),
        ]
    )


def make(job: Job) -> Plain:
    """Training by SGD with momentum, or logits."""
    start(job)
    batch_of = staged(job)
    spec: Any = workloads.specification(job.key.workload)
    model = network(job.key.workload)
    mean, scale = (tf.constant([float(value) for value in values]) for values in (spec.MEAN, spec.SCALE))
    lossy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sgd = keras.optimizers.SGD(1e-3, momentum=job.number("momentum"), weight_decay=job.number("weight_decay"))
    sgd.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])

    def logits(batch: Batch, training: bool) -> Any:
        pixels = (tf.cast(batch["images"], tf.float32) / 255 - mean) / scale
        return model(pixels, training=training)

    if job.key.phase == "train":
        train = trained(model, sgd, lambda batch: lossy(batch["labels"], logits(batch, True)))
        return plain(model, lambda index: train(batch_of(index)))
    infer = tf.function(lambda batch: logits(batch, False))
    return plain(model, lambda index: infer(batch_of(index)))
