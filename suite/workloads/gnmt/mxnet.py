"""The pair gnmt / mxnet: training step, decoding, and the views that the tests compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet import autograd

from suite.frameworks.mxnet import Adam, Batch, Framework, clip_by_global_norm
from suite.frameworks.mxnet_recurrent import Dropout
from suite.workloads import weights as initial_weights
from suite.workloads.clipped import ClippedSteps
from suite.workloads.contract import Data, Job
from suite.workloads.gnmt import beam, spec
from suite.workloads.gnmt import mxnet_model as model
from suite.workloads.gnmt.data import first_of_each_shape
from suite.workloads.gnmt.mxnet_beam import MxnetDecoder, Remember, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

Tensor = Any


class Pair(ClippedSteps):
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.dims = spec.dimensions(job.key.scale, job.key.variant)
        self.train = job.key.phase == "train"
        self.dropout = Dropout(job.number("dropout"))
        self._no_dropout = Dropout()
        self._blocks: dict[tuple[str, model.Shape], Any] = {}
        self._shared = self._make_parameters()
        self._weights = {name: self._shared[name].data() for name in self._names()}
        self._load()
        self._results = framework.results(self._weights.values())
        self._norms = []
        # A decoding step shows nothing but token ids: what the first layer gives for one of them has a type.
        token = mx.nd.array([spec.BOS], ctx=framework.context)
        embedding = self._weights["embedding"]
        framework.observed.note(weights=embedding, activations=mx.nd.take(embedding, token))
        if self.train:
            self._slopes = {name: self._shared[name].grad() for name in self._names()}
            self._adam = Adam(list(self._weights.values()), job.hyper)
        if job.mode == "throughput":
            self._compile()

    def _names(self) -> list[str]:
        return [parameter.name for parameter in spec.parameters(self.dims)]

    def _make_parameters(self) -> Any:
        shape = model.Shape(1, 1, 1)  # parameters do not depend on it
        found = model.Network(self.dims, self.framework.dtype, shape, self.dropout).collect_params()
        found.initialize(ctx=self.framework.context)
        if not self.train:
            found.setattr("grad_req", "null")
        return found

    def _load(self) -> None:
        for name, array in initial_weights.initial(spec.NAME, spec.parameters(self.dims)):
            self._weights[name][:] = self.framework.tensor(array)

    def _block(self, task: str, shape: model.Shape, make: Callable[..., Any]) -> Any:
        """The block of ``task`` for ``shape``, made when first needed: hybridized ones hold static memory."""
        if (task, shape) not in self._blocks:
            dropout = self.dropout if task == "loss" else self._no_dropout
            block = make(self.dims, self.framework.dtype, shape, dropout, self._shared)
            self._blocks[task, shape] = self.framework.make_fast(block)
        return self._blocks[task, shape]

    def _lengths(self, batch: Batch) -> Tensor:
        return batch["source_lengths"].astype(self.framework.dtype)

    def _loss(self, batch: Batch) -> Tensor:
        def make(*args: Any) -> model.Loss:
            return model.Loss(*args, smoothing=self.job.number("smoothing"))

        block = self._block("loss", _shape(batch), make)
        return block(batch["source"], self._lengths(batch), batch["target_in"], batch["target_out"])

    def _gradients(self, batch: Batch) -> Tensor:
        """The loss; its gradients are left in the parameters' gradient arrays."""
        with autograd.record():
            loss = self._loss(batch)
        loss.backward()
        self.framework.observed.note(activations=loss, gradients=self._slopes["embedding"])
        return loss

    def _update(self, batch: Batch) -> Tensor:
        loss = self._gradients(batch)
        clipped, norm = clip_by_global_norm(list(self._slopes.values()), self.job.number("clip"))
        self._adam.update(clipped)
        return mx.nd.concat(loss.reshape((1,)), norm.reshape((1,)), dim=0)

    def _decode(self, batch: Batch) -> Tensor:
        """Greedy tokens [B, T] of exactly the reference lengths, PAD behind; EOS does not stop a sentence."""
        shape = _shape(batch)
        tokens = self._block("greedy", shape, model.Greedy)(batch["source"], self._lengths(batch))
        position = mx.nd.arange(shape.target, ctx=self.framework.context, dtype="int32").reshape((1, -1))
        kept = mx.nd.broadcast_lesser(position, batch["target_lengths"].reshape((-1, 1)))
        return tokens * kept

    def _compile(self) -> None:
        """Run one step of each shape of batches that are read; the worker does so for staged ones."""
        for index in first_of_each_shape(self.data):
            self.step(index)
        if self.collect():
            self.reset()

    def step(self, index: int) -> None:
        """See the contract."""
        batch = self.framework.feed(self.data, index)
        if self.train:
            self._adam.set_rate(spec.learning_rate(self.job.hyper, index))
        self._results.keep(self._update(batch) if self.train else self._decode(batch))

    def reset(self) -> None:
        """See the contract; the dropout stream starts again too."""
        mx.random.seed(self.job.seed % 2**31)
        self._norms.clear()
        if self.train:
            self._load()
            self._adam.reset()

    def parameters(self) -> Arrays:
        """See the contract."""
        return {name: self.framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """See the contract."""
        self._gradients(self.framework.feed(self.data, index))
        return {name: self.framework.array(slope) for name, slope in self._slopes.items()}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [real target positions, V], sentence after sentence, by teacher forcing, dropout off."""
        batch = self.framework.feed(self.data, index)
        block = self._block("logits", _shape(batch), model.Logits)
        found = block(batch["source"], self._lengths(batch), batch["target_in"])
        logits = self.framework.array(found).transpose(1, 0, 2)
        real: NDArray[Any] = logits[self.framework.array(batch["target_out"]) != spec.PAD]
        return real

    def decoder(self, arrays: Arrays) -> MxnetDecoder:
        """Single steps of the decoder over ``source`` [n, S] with ``source_lengths`` [n]."""
        size, width = arrays["source"].shape
        shape = model.Shape(size, width, int(self.job.hyper["beam"]))
        encode, step = (self._block(make.__name__, shape, make) for make in (Remember, Step))
        batch = {name: self.framework.tensor(arrays[name]) for name in ("source", "source_lengths")}
        memory = encode(batch["source"], self._lengths(batch))
        return MxnetDecoder(self.framework, step, memory, self.dims, shape)

    def predict(self, arrays: Arrays) -> Arrays:
        """Translations: ``tokens`` [n, L] int32 (read up to EOS) and ``index`` [n], the lines."""
        sentences, width = arrays["source"].shape
        rules = beam.Rules.of(self.job.hyper, spec.decoding_limit(self.job.key.scale, width))
        return {"tokens": beam.search(self.decoder(arrays), sentences, rules), "index": arrays["index"]}


def _shape(batch: Batch) -> model.Shape:
    size, source = batch["source"].shape
    return model.Shape(size, source, batch["target_in"].shape[1])
