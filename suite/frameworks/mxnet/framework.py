"""MXNet 1.9.1 Gluon: device, timestamps, optimisers and the fast path (hybridize with static memory)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from numpy.typing import NDArray

from suite.common.image_reader import DeviceImages
from suite.common.support import UnsupportedJob, unsupported
from suite.contract import Data, Job
from suite.frameworks import common
from suite.frameworks.common import BaseFramework, HostTimestamps, NoScaling, as_float32
from suite.frameworks.mxnet.exchange import Exchange
from suite.frameworks.mxnet.timestamps import EngineTimestamps, handles_of

Tensor = Any
Batch = dict[str, Tensor]

_LONG_SUM = 1 << 18  # more squares than this are added up in parts, for the precision of float32
_TOGETHER = 60  # the most tensors that one call of the fused update accepts
_ALONE = 1 << 14  # a tensor of this size is updated alone: on a CPU the fused op is 3-4 times slower
_READ_AHEAD = 32  # on a CPU, the most batches in memory that wait for the engine


class Framework(BaseFramework):
    """See :class:`suite.contract.Framework`; other members are for pairs, equally named everywhere."""

    name = "mxnet"

    def __init__(self, job: Job) -> None:
        if reason := unsupported(job.key, job.device):
            raise UnsupportedJob(reason)
        super().__init__()
        self.cuda = job.device.startswith("cuda")
        if self.cuda and mx.context.num_gpus() == 0:
            raise UnsupportedJob(f"device: expected a usable GPU for {job.device}, found none in this build")
        self.context = mx.gpu(job.device_index) if self.cuda else mx.cpu()
        self.fast = job.fast
        self.threads = job.threads
        self.timestamp_kind = "host_dispatch" if self.cuda else "host_completion"
        self.dtype = "float64" if job.key.precision == "fp64" else "float32"
        self.compute_dtype = self.dtype
        self.scaling = NoScaling()
        self._timestamps: HostTimestamps = HostTimestamps() if self.cuda else EngineTimestamps()
        check_call(_LIB.MXSetNumOMPThreads(job.threads))
        self._seed = (job.seed + job.rank) % 2**31  # dropout differs between ranks
        self.seed()
        self.exchange = Exchange(job)
        self.arrivals = self.exchange.arrivals

    def seed(self) -> None:
        """Restart MXNet's random stream, which dropout uses."""
        mx.random.seed(self._seed)

    def describe(self) -> dict[str, Any]:
        """Versions, device, threads, flags, and the exchange between ranks."""
        features = mx.runtime.Features()
        facts: dict[str, Any] = {
            "version": mx.__version__,
            "device": "cuda" if self.cuda else "cpu",
            "device_name": None,
            "cuda": None,
            "cudnn": None,
            "threads": self.threads,
            "interop_threads": None,
            "tf32": False,
            "onednn": features.is_enabled("MKLDNN"),
            "compute_dtype": self.compute_dtype,
            "fast_path": "hybridize, static" if self.fast else "off",
        }
        if self.exchange.active:
            facts["exchange"] = self.exchange.describe()
        return facts

    def synchronize(self) -> None:
        """Wait for every operation of the engine."""
        mx.nd.waitall()

    def memory(self) -> dict[str, int | None]:
        """Unknown: MXNet does not record the peak."""
        return {"peak_device_bytes": None}

    def tensor(self, array: NDArray[Any] | DeviceImages) -> Tensor:
        """A copy of ``array`` on the device; floating-point values in the type of the parameters."""
        array = np.asarray(array)
        dtype = self.dtype if array.dtype.kind == "f" else array.dtype
        return mx.nd.array(array, ctx=self.context, dtype=dtype)

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of ``tensor`` on the host; waits for it."""
        return np.array(tensor.asnumpy(), order="C")

    def feed(self, data: Data, index: int) -> Batch:
        """See the base; on a CPU no more than ``_READ_AHEAD`` batches wait for the engine."""
        if not self.cuda and index % _READ_AHEAD == 0 and data.slot(index) is None:
            mx.nd.waitall()
        return super().feed(data, index)

    def make_fast(self, block: Any) -> Any:
        """Hybridize a ``HybridBlock`` with static memory; its outputs are overwritten by the next call."""
        if self.fast:
            block.hybridize(static_alloc=True, static_shape=True)
        return block

    def results(self, parameters: Collection[Tensor] = ()) -> Results:
        """A new store for the outputs of steps; a step ends when output and ``parameters`` are written."""
        return Results(self, parameters)

    def ends_with(self, written: Any) -> None:
        """See :class:`EngineTimestamps`."""
        if isinstance(self._timestamps, EngineTimestamps):
            self._timestamps.ends_with(written)


class Results(common.Results):
    """Outputs of steps, stored on the device until one copy to the host."""

    _framework: Framework

    def __init__(self, framework: Framework, parameters: Collection[Tensor]) -> None:
        super().__init__(framework)
        self._written = handles_of(parameters)

    def keep(self, tensor: Tensor) -> None:
        """Store a copy: a hybridized block with static memory reuses its outputs."""
        copied = tensor.copy()
        super().keep(copied)
        self._written[-1] = copied.handle
        self._framework.ends_with(self._written)


class Adam:
    """Adam after Kingma and Ba with epsilon added after the bias correction; dense on every parameter.

    MXNet's ``adam_update`` adds epsilon before the correction, and takes its scalars as float32. With
    ``epsilon * sqrt(1 - beta2**t)`` and the rate corrected for the rounded betas, its result equals PyTorch's
    formula in the precision of float32. In float64 separate operators compute the formula.
    """

    def __init__(self, parameters: Sequence[Tensor], hyper: Mapping[str, str]) -> None:
        self.parameters = list(parameters)
        self._float64 = self.parameters[0].dtype == np.float64
        rounded = np.float64 if self._float64 else np.float32
        self._beta1, self._beta2 = (float(rounded(float(hyper[name]))) for name in ("beta1", "beta2"))
        self._epsilon = float(hyper["epsilon"])
        self._means = [mx.nd.zeros_like(parameter) for parameter in self.parameters]
        self._squares = [mx.nd.zeros_like(parameter) for parameter in self.parameters]
        self._rate, self._step = 0.0, 0

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self._rate = as_float32(rate)

    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self._step += 1
        root = math.sqrt(1.0 - self._beta2**self._step)
        rate = self._rate / (1.0 - self._beta1**self._step)
        update = self._by_operators if self._float64 else self._fused
        for tensors in zip(self.parameters, gradients, self._means, self._squares, strict=True):
            update(*tensors, rate, root)

    def _fused(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor, rate: float, root: float) -> None:
        betas = {"beta1": self._beta1, "beta2": self._beta2}
        mx.nd.adam_update(w, g, m, v, out=w, lr=rate * root, epsilon=self._epsilon * root, wd=0.0, **betas)

    def _by_operators(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor, rate: float, root: float) -> None:
        m *= self._beta1
        m += (1.0 - self._beta1) * g
        v *= self._beta2
        v += (1.0 - self._beta2) * mx.nd.square(g)
        w -= rate * (m / (mx.nd.sqrt(v) / root + self._epsilon))

    def reset(self) -> None:
        """Set every moment and the step count to zero."""
        self._step = 0
        for tensor in [*self._means, *self._squares]:
            tensor[:] = 0


class Momentum:
    """SGD with momentum by PyTorch's formula: ``v = momentum * v + g; w -= rate * v``.

    MXNet's op stores ``u = -rate * v`` instead. With the momentum times the ratio of this rate to the last,
    its result equals PyTorch's formula also where the rate changes; only a rate of 0 would lose the velocity.
    The op takes its scalars as float32: in float64 separate operators compute the formula, with ``v`` in
    ``state``.
    ``decayed`` are the indices of the parameters to whose gradient ``weight_decay * w`` is added first.
    """

    def __init__(
        self, parameters: Sequence[Tensor], hyper: Mapping[str, str], decayed: Sequence[int] = ()
    ) -> None:
        self.parameters = list(parameters)
        self._float64 = self.parameters[0].dtype == np.float64
        self._momentum = float(hyper["momentum"])
        decay = float(hyper["weight_decay"]) if decayed else 0.0
        self._decays = [decay if at in set(decayed) else 0.0 for at in range(len(self.parameters))]
        self.state = [mx.nd.zeros_like(parameter) for parameter in self.parameters]
        self._rate = self._last = 0.0

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self._rate = as_float32(rate)

    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        if self._float64:
            self._by_operators(gradients)
            return
        momentum = self._momentum * self._rate / self._last if self._last else 0.0
        self._last = self._rate
        small = []
        for w, g, v, decay in zip(self.parameters, gradients, self.state, self._decays, strict=True):
            if w.size < _ALONE:
                small.append((w, g, v, decay))
            else:
                mx.nd.sgd_mom_update(w, g, v, out=w, lr=self._rate, wd=decay, momentum=momentum)
        for first in range(0, len(small), _TOGETHER):
            part = small[first : first + _TOGETHER]
            mx.nd.multi_sgd_mom_update(
                *(tensor for group in part for tensor in group[:3]),
                out=[group[0] for group in part],
                lrs=[self._rate] * len(part),
                wds=[group[3] for group in part],
                momentum=momentum,
                num_weights=len(part),
            )

    def _by_operators(self, gradients: Sequence[Tensor]) -> None:
        for w, g, v, decay in zip(self.parameters, gradients, self.state, self._decays, strict=True):
            v *= self._momentum
            v += g + decay * w if decay else g
            w -= self._rate * v

    def reset(self) -> None:
        """Set every velocity to zero."""
        self._last = 0.0
        for tensor in self.state:
            tensor[:] = 0


class Descent:
    """SGD without momentum: ``w -= rate * g``; it has no state."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.rate = 0.0

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self.rate = rate

    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if parameter.dtype == np.float64:  # the op takes the rate as a float32
                parameter -= self.rate * gradient
            else:
                mx.nd.sgd_update(parameter, gradient, out=parameter, lr=self.rate, wd=0.0)

    def reset(self) -> None:
        """No effect: there is no state."""


def _square(gradient: Tensor) -> Tensor:
    """The sum of squares [1], added up in parts for precision; ``norm`` by rows takes ten times longer."""
    flat = gradient.reshape(-1)
    if flat.size <= _LONG_SUM:
        return mx.nd.dot(flat, flat)  # several times faster than sum(square)
    starts = range(0, flat.size, _LONG_SUM)
    parts = [flat[start : start + _LONG_SUM] for start in starts]
    return mx.nd.add_n(*(mx.nd.dot(part, part) for part in parts))


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm [1] of all ``gradients`` together."""
    return mx.nd.sqrt(mx.nd.add_n(*(_square(gradient) for gradient in gradients)))


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float) -> tuple[list[Tensor], Tensor]:
    """The gradients times ``limit / max(norm, limit)``, in place, and the norm of all of them before that.

    In place, because MXNet requests new memory from the system for every large array on a CPU.
    """
    norm = global_norm(gradients)
    scale = limit / mx.nd.maximum(norm, limit)
    for gradient in gradients:
        mx.nd.broadcast_mul(gradient, scale.reshape((1,) * gradient.ndim), out=gradient)
    return list(gradients), norm
