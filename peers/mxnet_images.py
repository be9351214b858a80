"""Image classifiers as a user would write them in MXNet: Gluon's model zoo, ``gluon.Trainer``, hybridized.

Differences to the suite: weight decay applies to every parameter that has a multiplier; no label smoothing;
inference normalises by running statistics instead of folding them. The ``resnet50_v1`` of Gluon has the
stride in the first convolution (6 % less work): here is its class with the block of version 1.5.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from peers.mxnet_common import plain, staged
from peers.plain import Plain
from suite import workloads
from suite.contract import Job

LAYERS = {"resnet50": (3, 4, 6, 3), "resnet152": (3, 8, 36, 3)}


class Bottleneck(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """The block of ``gluon.model_zoo.vision.BottleneckV1`` with its stride on the 3x3 convolution."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **names: Any
    ):
        super().__init__(**names)
        narrow = channels // 4
        self.body = gluon.nn.HybridSequential(prefix="")
        for outputs, kernel, step in ((narrow, 1, 1), (narrow, 3, stride), (channels, 1, 1)):
            self.body.add(gluon.nn.Conv2D(outputs, kernel, step, kernel // 2, use_bias=False))
            self.body.add(gluon.nn.BatchNorm())
            if outputs == narrow:
                self.body.add(gluon.nn.Activation("relu"))
        self.downsample = None
        if downsample:
            self.downsample = gluon.nn.HybridSequential(prefix="")
            self.downsample.add(gluon.nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels))
            self.downsample.add(gluon.nn.BatchNorm())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Body plus shortcut, rectified."""
        shortcut = self.downsample(x) if self.downsample is not None else x
        return F.Activation(self.body(x) + shortcut, act_type="relu")


def small(blocks: tuple[int, ...]) -> Any:
    """The zoo's network for images of 32 pixels; its stem lacks normalisation and ReLU, which are added."""
    net = gluon.model_zoo.vision.ResNetV1(
        Bottleneck, blocks, [64, 256, 512, 1024, 2048], classes=10, thumbnail=True
    )
    stem, *rest = net.features
    with net.name_scope():
        features = gluon.nn.HybridSequential(prefix="")
        features.add(stem, gluon.nn.BatchNorm(), gluon.nn.Activation("relu"), *rest)
        net.features = features
    return net


def network(workload: str) -> Any:
    """The stock network at its published size."""
    zoo = gluon.model_zoo.vision
    if workload == "resnet50_cifar10":
        return small(LAYERS["resnet50"])
    if workload in LAYERS:
        return zoo.ResNetV1(Bottleneck, LAYERS[workload], [64, 256, 512, 1024, 2048])
    return getattr(zoo, workload)()


def make(job: Job) -> Plain:
    """Training by SGD with momentum, or logits."""
    batch_of = staged(job)
    spec: Any = workloads.specification(job.key.workload)
    net = network(job.key.workload)
    net.initialize(mx.init.Xavier(magnitude=2))
    net.hybridize(static_alloc=True, static_shape=True)
    mean, scale = (
        mx.nd.array(np.array([float(value) for value in values], np.float32).reshape(1, 3, 1, 1))
        for values in (spec.MEAN, spec.SCALE)
    )
    options = {"learning_rate": 1e-3, "momentum": job.number("momentum"), "wd": job.number("weight_decay")}
    trainer = gluon.Trainer(net.collect_params(), "sgd", options)
    lossy = gluon.loss.SoftmaxCrossEntropyLoss()

    def pixels(images: Any) -> Any:
        return (images.transpose((0, 3, 1, 2)).astype("float32") / 255 - mean) / scale

    def train(index: int) -> Any:
        batch = batch_of(index)
        images = pixels(batch["images"])
        with autograd.record():
            loss = lossy(net(images), batch["labels"])
        loss.backward()
        trainer.step(job.key.batch)
        return loss.mean()

    def infer(index: int) -> Any:
        return net(pixels(batch_of(index)["images"])).copy()

    return plain(net, train if job.key.phase == "train" else infer)
