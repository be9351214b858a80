"""The LSTM language model as a user would write it in MXNet: ``gluon.rnn.LSTM``, clipping, ``gluon.Trainer``.

Difference to the suite: Gluon's LSTM has two biases, both trained.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet import autograd, gluon

from peers.mxnet_common import plain, staged
from peers.plain import Plain
from suite.contract import Job
from suite.workloads.lstm_ptb import spec


class Model(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """Logits [T, B, V] of tokens [T, B], and the state moved on."""

    def __init__(self, dims: spec.Dimensions, dropout: float) -> None:
        super().__init__()
        self.dropout = gluon.nn.Dropout(dropout)
        self.embedding = gluon.nn.Embedding(dims.vocabulary, dims.hidden)
        self.lstm = gluon.rnn.LSTM(dims.hidden, dims.layers, dropout=dropout, input_size=dims.hidden)
        self.softmax = gluon.nn.Dense(dims.vocabulary, in_units=dims.hidden, flatten=False)

    def hybrid_forward(self, F: Any, tokens: Any, *state: Any) -> Any:  # noqa: ARG002
        """See the class."""
        outputs, moved = self.lstm(self.dropout(self.embedding(tokens)), list(state))
        return self.softmax(self.dropout(outputs)), moved


def make(job: Job) -> Plain:
    """Training with the state carried on, or negative log likelihoods."""
    batch_of = staged(job)
    dims = spec.dimensions(job.key.scale, job.key.variant)
    net = Model(dims, job.number("dropout"))
    net.initialize(mx.init.Uniform(float(dims.spread)))
    net.hybridize(static_alloc=True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    lossy = gluon.loss.SoftmaxCrossEntropyLoss()
    carried = [net.lstm.begin_state(batch_size=job.key.batch)]
    trained = [parameter for parameter in net.collect_params().values() if parameter.grad_req != "null"]

    def losses(index: int) -> Any:
        batch = batch_of(index)
        state = [tensor.detach() for tensor in carried[0]]
        logits, carried[0] = net(batch["inputs"].T, *state)
        return lossy(logits.reshape((-1, dims.vocabulary)), batch["targets"].T.reshape(-1))

    def train(index: int) -> Any:
        with autograd.record():
            loss = losses(index).sum() / job.key.batch
        loss.backward()
        gluon.utils.clip_global_norm([p.grad() for p in trained], job.number("clip"), check_isfinite=False)
        trainer.step(1)
        return loss

    return plain(net, train if job.key.phase == "train" else losses)
