"""NeuMF as a user would write it in MXNet: ``gluon.nn.Embedding``, ``gluon.nn.Dense``, Adam."""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet import autograd, gluon

from peers.mxnet_common import plain, staged
from peers.plain import Plain
from suite.contract import Job
from suite.workloads.ncf import spec


class Model(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """Logits [B]: two embeddings multiplied, two through an MLP, joined by one output."""

    def __init__(self, dims: spec.Dimensions) -> None:
        super().__init__()
        self.mf_user = gluon.nn.Embedding(dims.users, dims.factors)
        self.mf_item = gluon.nn.Embedding(dims.items, dims.factors)
        self.mlp_user = gluon.nn.Embedding(dims.users, dims.half)
        self.mlp_item = gluon.nn.Embedding(dims.items, dims.half)
        self.mlp = gluon.nn.HybridSequential()
        for outputs in dims.layers[1:]:
            self.mlp.add(gluon.nn.Dense(outputs, activation="relu"))
        self.output = gluon.nn.Dense(1)

    def hybrid_forward(self, F: Any, users: Any, items: Any) -> Any:
        """See the class."""
        product = self.mf_user(users) * self.mf_item(items)
        hidden = self.mlp(F.concat(self.mlp_user(users), self.mlp_item(items), dim=1))
        return self.output(F.concat(product, hidden, dim=1)).reshape((-1,))


def make(job: Job) -> Plain:
    """Training or scoring."""
    batch_of = staged(job)
    net = Model(spec.dimensions(job.key.scale, job.key.variant))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3})
    lossy = gluon.loss.SigmoidBinaryCrossEntropyLoss()

    def train(index: int) -> Any:
        batch = batch_of(index)
        with autograd.record():
            loss = lossy(net(batch["users"], batch["items"]), batch["labels"].astype("float32"))
        loss.backward()
        trainer.step(job.key.batch)
        return loss.mean()

    def infer(index: int) -> Any:
        batch = batch_of(index)
        return net(batch["users"], batch["items"]).sigmoid()

    return plain(net, train if job.key.phase == "train" else infer)
