"""The LSTM language model in MXNet Gluon. Sequences are time-major inside, [T, B, H]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from suite.frameworks.mxnet import Batch, Descent, Framework, clip_by_global_norm
from suite.frameworks.mxnet_recurrent import Dropout, lstm
from suite.workloads import weights as initial_weights
from suite.workloads.clipped import ClippedSteps
from suite.workloads.contract import Data, Job
from suite.workloads.lstm_ptb import spec
from suite.workloads.lstm_ptb.data import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

Tensor = Any
Weights = dict[str, Tensor]


class Network(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """The parameters under canonical names, and the layers; subclasses add one task each.

    ``state`` is [2 layers, B, H]: hidden and cell of the first layer, then of the next one.
    """

    def __init__(self, dims: spec.Dimensions, dtype: str, dropout: Dropout, shared: Any = None) -> None:
        super().__init__(prefix="", params=shared)
        self._dims, self._dtype, self._dropout = dims, dtype, dropout
        self._names: dict[str, str] = {}
        for parameter in spec.parameters(dims):
            attribute = parameter.name.replace(".", "_")
            self._names[attribute] = parameter.name
            setattr(self, attribute, self.params.get(parameter.name, shape=parameter.shape, dtype=dtype))

    def logits(self, F: Any, weight: Weights, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [T, B, V] for ``inputs`` [B, T]. Dropout sits between layers, never between steps."""
        vocabulary, size = self._dims.vocabulary, self._dims.hidden
        weight = {self._names[attribute]: tensor for attribute, tensor in weight.items()}
        values = F.Embedding(
            F.transpose(inputs), weight["embedding"], input_dim=vocabulary, output_dim=size, dtype=self._dtype
        )
        moved: list[Tensor] = []
        for layer in range(self._dims.layers):
            name = f"lstm.{layer}"
            kernel, recurrent, bias = (weight[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
            at = 2 * layer
            start = tuple(F.slice_axis(state, axis=0, begin=k, end=k + 1) for k in (at, at + 1))
            dropped = self._dropout(F, name, values)
            values, last = lstm(F, dropped, kernel, recurrent, bias, size, start)
            moved += last
        softmax = weight["softmax.weight"], weight["softmax.bias"]
        hidden = self._dropout(F, "softmax", values)
        found = F.FullyConnected(hidden, *softmax, num_hidden=vocabulary, flatten=False)
        return found, F.BlockGrad(F.concat(*moved, dim=0))


class Logits(Network):
    """Logits [T, B, V], and the state moved on."""

    def hybrid_forward(
        self, F: Any, inputs: Tensor, state: Tensor, **weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        return self.logits(F, weight, inputs, state)


class Scored(Network):
    """Negative log likelihoods [T, B] of ``targets`` [B, T], and the state moved on."""

    def hybrid_forward(
        self, F: Any, inputs: Tensor, state: Tensor, targets: Tensor, **weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        logits, moved = self.logits(F, weight, inputs, state)
        return -F.pick(F.log_softmax(logits), F.transpose(targets), axis=2), moved


class Pair(ClippedSteps):
    """See :class:`suite.workloads.contract.Pair`."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.dims = spec.dimensions(job.key.scale, job.key.variant)
        self.train = job.key.phase == "train"
        self.dropout = Dropout(job.number("dropout"))
        self._shared = self._make_parameters()
        names = [parameter.name for parameter in spec.parameters(self.dims)]
        self._weights = {name: self._shared[name].data() for name in names}
        self._load()
        self._state = self._zero_state(job.key.batch)
        self._results = framework.results(self._weights.values())
        self._norms = []
        framework.observed.note(weights=self._weights["embedding"])
        # One block for each shape, because a hybridized one holds static memory.
        self._score = self._block(Scored, self.dropout if self.train else Dropout())
        self._row = self._block(Scored, Dropout())
        self._logits = self._block(Logits, Dropout())
        if self.train:
            self._slopes = {name: self._shared[name].grad() for name in names}
            self._descent = Descent(list(self._weights.values()))

    def _make_parameters(self) -> Any:
        found = Network(self.dims, self.framework.dtype, self.dropout).collect_params()
        found.initialize(ctx=self.framework.context)
        if not self.train:
            found.setattr("grad_req", "null")
        return found

    def _block(self, kind: type[Network], dropout: Dropout) -> Any:
        return self.framework.make_fast(kind(self.dims, self.framework.dtype, dropout, self._shared))

    def _load(self) -> None:
        for name, array in initial_weights.initial(spec.NAME, spec.parameters(self.dims)):
            self._weights[name][:] = self.framework.tensor(array)

    def _zero_state(self, batch: int) -> Tensor:
        shape = (2 * self.dims.layers, batch, self.dims.hidden)
        return mx.nd.zeros(shape, ctx=self.framework.context, dtype=self.framework.dtype)

    def _gradients(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss (a sum over steps, a mean over rows) and the state moved on; gradients in their arrays."""
        with autograd.record():
            losses, moved = self._score(batch["inputs"], self._state, batch["targets"])
            loss = losses.sum() / losses.shape[1]
        loss.backward()
        self.framework.observed.note(activations=losses, gradients=self._slopes["embedding"])
        return loss, moved

    def _update(self, batch: Batch) -> Tensor:
        loss, moved = self._gradients(batch)
        clipped, norm = clip_by_global_norm(list(self._slopes.values()), self.job.number("clip"))
        self._descent.update(clipped)
        self._state[:] = moved
        return mx.nd.concat(loss.reshape((1,)), norm.reshape((1,)), dim=0)

    def _infer(self, batch: Batch) -> Tensor:
        """Negative log likelihoods [B, T]."""
        losses, moved = self._score(batch["inputs"], self._state, batch["targets"])
        self.framework.observed.note(activations=losses)
        self._state[:] = moved
        return losses.T

    def step(self, index: int) -> None:
        """See the contract; the first step of an epoch starts from a zero state."""
        batch = self.framework.feed(self.data, index)
        if index % self.data.steps_per_epoch == 0:
            self._state[:] = 0
        if self.train:
            self._descent.set_rate(spec.rate_of(self.job.hyper, index, self.data.steps_per_epoch))
        self._results.keep(self._update(batch) if self.train else self._infer(batch))

    def reset(self) -> None:
        """See the contract; the carried state and the dropout stream start again too."""
        mx.random.seed(self.job.seed % 2**31)
        self._norms.clear()
        self._state[:] = 0
        if self.train:
            self._load()

    def parameters(self) -> Arrays:
        """See the contract."""
        return {name: self.framework.array(weight) for name, weight in self._weights.items()}

    def gradients(self, index: int) -> Arrays:
        """See the contract; from the carried state, which stays as it is."""
        self._gradients(self.framework.feed(self.data, index))
        return {name: self.framework.array(slope) for name, slope in self._slopes.items()}

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [T, B, V], dropout off, from the carried state, which stays as it is."""
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._logits(batch["inputs"], self._state)[0])

    def predict(self, arrays: Arrays) -> Arrays:
        """``nll`` [n - 1], the negative log likelihood of every token but the first, from a zero state."""
        state, found = self._zero_state(1), []
        for window in windows(arrays["tokens"], self.dims.steps):
            batch = {name: self.framework.tensor(array) for name, array in window.items()}
            losses, moved = self._row(batch["inputs"], state, batch["targets"])
            state[:] = moved
            found.append(losses.reshape((-1,)).copy())
        nll = self.framework.array(mx.nd.concat(*found, dim=0))
        return {"nll": nll[: len(arrays["tokens"]) - 1]}
