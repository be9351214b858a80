"""MXNet 1.9.1 Gluon: device, timestamps, optimisers and the fast path (hybridize with static memory)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from numpy.typing import NDArray

from suite.common.support import Unsupported, unsupported
from suite.contract import Data, Job
from suite.frameworks.common import HostTimestamps, NoScaling, Observed, as_float32
from suite.frameworks.mxnet.timestamps import EngineTimestamps, handles_of

Tensor = Any
Batch = dict[str, Tensor]

_LONG_SUM = 1 << 18  # numbers beyond which float32 does not add up their squares at once
_TOGETHER = 60  # tensors in one call of a fused update, the most that the op takes
_ALONE = 1 << 14  # numbers from which a tensor is updated alone: on a CPU the fused op is 3-4 times slower
_READ_AHEAD = 32  # batches that are read and may wait for the engine on a CPU: they lie in memory


class Framework:
    """See :class:`suite.contract.Framework`; the rest is for pairs, named alike everywhere."""

    name = "mxnet"

    def __init__(self, job: Job) -> None:
        if reason := unsupported(job.key, job.device):
            raise Unsupported(reason)
        self.cuda = job.device.startswith("cuda")
        if self.cuda and mx.context.num_gpus() == 0:
            raise Unsupported(f"device: expected a usable GPU for {job.device}, found none in this build")
        number = int(job.device.partition(":")[2] or 0)
        self.context = mx.gpu(number) if self.cuda else mx.cpu()
        self.fast = job.fast
        self.threads = job.threads
        self.timestamp_kind = "host_dispatch" if self.cuda else "host_completion"
        self.dtype = "float64" if job.key.precision == "fp64" else "float32"
        self.compute_dtype = self.dtype
        self.observed = Observed()
        self.scaling = NoScaling()
        self._timestamps: HostTimestamps = HostTimestamps() if self.cuda else EngineTimestamps()
        self._staged: dict[int, Batch] = {}
        check_call(_LIB.MXSetNumOMPThreads(job.threads))
        self._seed = job.seed % 2**31
        self.seed()

    def seed(self) -> None:
        """Start MXNet's own random stream, that of dropout, from its beginning."""
        mx.random.seed(self._seed)

    def describe(self) -> dict[str, Any]:
        """Versions, device, threads and flags."""
        features = mx.runtime.Features()
        return {
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

    def synchronize(self) -> None:
        """Wait for every operation of the engine."""
        mx.nd.waitall()

    def prepare_timestamps(self, count: int) -> None:
        """Make room for ``count`` timestamps."""
        self._timestamps.prepare(count)

    def record_timestamp(self, index: int) -> None:
        """Host time; on the CPU that at which the engine has done all of the step."""
        self._timestamps.record_timestamp(index)

    def read_timestamps(self, count: int) -> list[int]:
        """Cumulative nanoseconds from timestamp 0."""
        return self._timestamps.read(count)

    def memory(self) -> dict[str, int | None]:
        """Unknown: MXNet keeps no peak of its own."""
        return {"peak_device_bytes": None}

    def dtypes(self) -> dict[str, str]:
        """Types that the pair noted in ``observed``."""
        return dict(self.observed.types)

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """A copy of ``array`` on the device; floating-point values in the type of the parameters."""
        array = np.asarray(array)
        dtype = self.dtype if array.dtype.kind == "f" else array.dtype
        return mx.nd.array(array, ctx=self.context, dtype=dtype)

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of ``tensor`` on the host; waits for it."""
        return np.array(tensor.asnumpy(), order="C")

    def feed(self, data: Data, index: int) -> Batch:
        """The batch of step ``index`` on the device; batches of a synthetic cycle are staged once."""
        slot = data.slot(index)
        if slot is None:
            if not self.cuda and index % _READ_AHEAD == 0:
                mx.nd.waitall()
            return {name: self.tensor(array) for name, array in data.batch(index).items()}
        if slot not in self._staged:
            self._staged[slot] = {name: self.tensor(array) for name, array in data.batch(index).items()}
        return self._staged[slot]

    def make_fast(self, block: Any) -> Any:
        """Hybridize a ``HybridBlock`` with static memory; its outputs are overwritten by the next call."""
        if self.fast:
            block.hybridize(static_alloc=True, static_shape=True)
        return block

    def results(self, parameters: Collection[Tensor] = ()) -> Results:
        """A new store for the outputs of steps, which end when these and ``parameters`` are written."""
        return Results(self, parameters)

    def ends_with(self, written: Any) -> None:
        """See :class:`EngineTimestamps`."""
        if isinstance(self._timestamps, EngineTimestamps):
            self._timestamps.ends_with(written)


class Results:
    """Outputs of steps, kept on the device until one copy to the host."""

    def __init__(self, framework: Framework, parameters: Collection[Tensor]) -> None:
        self._framework = framework
        self._written = handles_of(parameters)
        self._kept: list[Tensor] = []

    def keep(self, tensor: Tensor) -> None:
        """Store a copy: a hybridized block with static memory reuses its outputs."""
        kept = tensor.copy()
        self._kept.append(kept)
        self._written[-1] = kept.handle
        self._framework.ends_with(self._written)

    def collect(self) -> list[NDArray[Any]]:
        """Every stored output in order, on the host; the store is empty afterwards."""
        kept, self._kept = self._kept, []
        return [self._framework.array(tensor) for tensor in kept]


class Adam:
    """Adam after Kingma and Ba with epsilon added after the bias correction; dense on every parameter.

    MXNet's ``adam_update`` adds epsilon before the correction, and takes its numbers as float32. Given
    ``epsilon * sqrt(1 - beta2**t)`` and the rate corrected for the betas so rounded, it computes PyTorch's
    form to the precision of float32. In float64 the same is written out.
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
        """The learning rate of the next update."""
        self._rate = as_float32(rate)

    def update(self, gradients: Sequence[Tensor]) -> None:
        """One update of every parameter, in place."""
        self._step += 1
        root = math.sqrt(1.0 - self._beta2**self._step)
        rate = self._rate / (1.0 - self._beta1**self._step)
        update = self._written_out if self._float64 else self._fused
        for tensors in zip(self.parameters, gradients, self._means, self._squares, strict=True):
            update(*tensors, rate, root)

    def _fused(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor, rate: float, root: float) -> None:
        betas = {"beta1": self._beta1, "beta2": self._beta2}
        mx.nd.adam_update(w, g, m, v, out=w, lr=rate * root, epsilon=self._epsilon * root, wd=0.0, **betas)

    def _written_out(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor, rate: float, root: float) -> None:
        m *= self._beta1
        m += (1.0 - self._beta1) * g
        v *= self._beta2
        v += (1.0 - self._beta2) * mx.nd.square(g)
        w -= rate * (m / (mx.nd.sqrt(v) / root + self._epsilon))

    def reset(self) -> None:
        """Forget every moment and the step count."""
        self._step = 0
        for tensor in [*self._means, *self._squares]:
            tensor[:] = 0


class Momentum:
    """SGD with momentum in PyTorch's form: ``v = momentum * v + g; w -= rate * v``.

    MXNet's op keeps ``u = -rate * v`` instead. Given the momentum times the ratio of this rate to the last,
    it computes PyTorch's form also where the rate changes; only a rate of 0 would forget the velocity. The op
    takes its numbers as float32: in float64 the form is written out, with ``v`` in ``state``.
    ``decayed`` are the positions of the parameters to whose gradient ``weight_decay * w`` is added first.
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
        """The learning rate of the next update."""
        self._rate = as_float32(rate)

    def update(self, gradients: Sequence[Tensor]) -> None:
        """One update of every parameter, in place."""
        if self._float64:
            self._written_out(gradients)
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

    def _written_out(self, gradients: Sequence[Tensor]) -> None:
        for w, g, v, decay in zip(self.parameters, gradients, self.state, self._decays, strict=True):
            v *= self._momentum
            v += g + decay * w if decay else g
            w -= self._rate * v

    def reset(self) -> None:
        """Forget every velocity."""
        self._last = 0.0
        for tensor in self.state:
            tensor[:] = 0


class Descent:
    """SGD without momentum: ``w -= rate * g``; it has no state."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.rate = 0.0

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next update."""
        self.rate = rate

    def update(self, gradients: Sequence[Tensor]) -> None:
        """One update of every parameter, in place."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if parameter.dtype == np.float64:  # the op takes its rate as a float32
                parameter -= self.rate * gradient
            else:
                mx.nd.sgd_update(parameter, gradient, out=parameter, lr=self.rate, wd=0.0)

    def reset(self) -> None:
        """It has nothing to forget."""


def _square(gradient: Tensor) -> Tensor:
    """The sum of squares [1], in parts that float32 adds up well; ``norm`` by rows takes ten times longer."""
    flat = gradient.reshape(-1)
    if flat.size <= _LONG_SUM:
        return mx.nd.dot(flat, flat)  # several times faster here than sum(square)
    starts = range(0, flat.size, _LONG_SUM)
    parts = [flat[start : start + _LONG_SUM] for start in starts]
    return mx.nd.add_n(*(mx.nd.dot(part, part) for part in parts))


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm [1] of all ``gradients`` together."""
    return mx.nd.sqrt(mx.nd.add_n(*(_square(gradient) for gradient in gradients)))


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float) -> tuple[list[Tensor], Tensor]:
    """The gradients times ``limit / max(norm, limit)``, in place, and the norm of all of them before that.

    In place, since MXNet takes fresh memory from the system for every large array on a CPU.
    """
    norm = global_norm(gradients)
    scale = limit / mx.nd.maximum(norm, limit)
    for gradient in gradients:
        mx.nd.broadcast_mul(gradient, scale.reshape((1,) * gradient.ndim), out=gradient)
    return list(gradients), norm
