"""PyTorch: device, precision, timestamps, optimisers and the fast path (one CUDA graph of the whole step)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from suite.common.image_reader import DeviceImages
from suite.common.support import UnsupportedJob, unsupported
from suite.contract import Job
from suite.frameworks.common import BaseFramework, HostTimestamps, Results, as_float32
from suite.frameworks.pytorch.exchange import Exchange
from suite.frameworks.pytorch.scaling import scaling_of, zero_where
from suite.frameworks.pytorch.steps import (
    WARM_UPS,
    WARM_UPS_OF_REDUCERS,
    BufferedResults,
    Captured,
    CopiedResults,
    CudaTimestamps,
)

Batch = dict[str, Tensor]
Step = Callable[[Batch], Tensor]
Fast = Callable[[Batch, int | None], Tensor]

_LONG_SUM = 1 << 16  # more squares than this are added up in parts on a CPU, for the precision of float32


class Framework(BaseFramework):
    """See :class:`suite.contract.Framework`; other members are for pairs, equally named everywhere."""

    name = "pytorch"

    def __init__(self, job: Job) -> None:
        if reason := unsupported(job.key, job.device):
            raise UnsupportedJob(reason)
        super().__init__()
        self.device = torch.device(job.device)
        self.cuda = self.device.type == "cuda"
        if self.cuda and not torch.cuda.is_available():
            raise UnsupportedJob(f"device: expected a usable GPU for {job.device}, found none in this build")
        if self.cuda:
            capability = ".".join(map(str, torch.cuda.get_device_capability(self.device)))
            if reason := unsupported(job.key, job.device, capability):
                raise UnsupportedJob(reason)
        self.fast = job.fast
        self.timestamp_kind = "device" if self.cuda else "host_completion"
        self.dtype = torch.float64 if job.key.precision == "fp64" else torch.float32
        types = {"bf16": torch.bfloat16, "fp16": torch.float16}
        self.compute_dtype = types.get(job.key.precision, self.dtype)
        self.scaling = scaling_of(job, self.device)
        # Steps are captured on one stream; the exchange of gradients is built and warmed up on it too.
        self.capture_stream = torch.cuda.Stream(self.device) if self.cuda else None
        # An eager step on the CPU is complete when it returns.
        self._timestamps = CudaTimestamps() if self.cuda else HostTimestamps()
        # Dropout differs between ranks.
        self.seed = (job.seed + job.rank) % 2**64
        self._set_flags(job)
        self.exchange = Exchange(job, self.device)
        self.arrivals = self.exchange.arrivals

    def _set_flags(self, job: Job) -> None:
        torch.set_num_threads(job.threads)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        torch.manual_seed(self.seed)
        tf32 = job.key.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = self.cuda and not job.deterministic
        # Unlike use_deterministic_algorithms, this does not import the compiler, which takes a second.
        torch.set_deterministic_debug_mode("warn" if job.deterministic else "default")
        if self.cuda:
            torch.cuda.set_device(self.device)
            # One compilation per shape is intended; a cycle of buckets has more shapes than the default of 8.
            torch._dynamo.config.recompile_limit = 64
            cache_autocast()

    def describe(self) -> dict[str, Any]:
        """Versions, device, threads, flags, and the exchange between ranks."""
        facts: dict[str, Any] = {
            "version": torch.__version__,
            "device": self.device.type,
            "device_name": None,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "compute_dtype": str(self.compute_dtype).removeprefix("torch."),
            "fast_path": ("compile, graph" if self.cuda else "eager") if self.fast else "off",
        }
        if self.exchange.active:
            facts["exchange"] = self.exchange.describe()
        if self.cuda:
            properties = torch.cuda.get_device_properties(self.device)
            facts["device_name"] = properties.name
            facts["capability"] = f"{properties.major}.{properties.minor}"
        return facts

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def memory(self) -> dict[str, int | None]:
        """The peak of bytes that tensors held on the device."""
        if not self.cuda:
            return {"peak_device_bytes": None}
        peak = torch.cuda.max_memory_allocated(self.device) + self.exchange.held_bytes()
        return {"peak_device_bytes": peak}

    def tensor(self, array: NDArray[Any] | DeviceImages) -> Tensor:
        """A copy of ``array`` on the device; floating-point values in the type of the parameters."""
        if isinstance(array, DeviceImages):
            return self._from_device(array)
        array = np.asarray(array)
        # For a GPU pinning copies it, and one copy is enough. PyTorch takes no array that cannot be written.
        copied = not self.cuda or not array.flags.writeable
        host = torch.from_numpy(np.array(array, order="C", copy=True if copied else None))
        if host.is_floating_point():
            host = host.to(self.dtype)
        return host.pin_memory().to(self.device, non_blocking=True) if self.cuda else host

    def _from_device(self, images: DeviceImages) -> Tensor:
        """A copy on the device of ``images``, enqueued."""
        copy = torch.from_dlpack(images).clone()
        if self.cuda:
            copied = torch.cuda.Event()
            copied.record()
            self.keep_until(copied.query, images)
        return copy

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of ``tensor`` on the host, C-contiguous; half precision as float32."""
        host = tensor.detach().to("cpu")
        if host.dtype in (torch.bfloat16, torch.float16):
            host = host.float()
        return np.array(host.numpy(), order="C")

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision for bf16 and fp16; otherwise a context without effect."""
        if self.compute_dtype == self.dtype:
            return contextlib.nullcontext()
        # The cache of cast weights would outlive a captured graph.
        return torch.autocast(self.device.type, dtype=self.compute_dtype, cache_enabled=False)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` compiled for a GPU; unchanged on a CPU, where a C++ compiler may be missing."""
        if not (self.cuda and self.fast):
            return function
        return torch.compile(function, dynamic=False, backend=self.exchange.compiler())

    def make_fast(self, function: Step, state: Sequence[Tensor] = ()) -> Fast:
        """Turn ``function(batch)`` into ``fast(batch, slot)``, on a GPU replaying a captured graph.

        ``state`` are all tensors that the function changes in place: capturing runs it a few times and
        restores them. The next call may overwrite the result: store it in :meth:`results` first.
        """
        if self.capture_stream is not None and self.fast:
            warm_ups = WARM_UPS_OF_REDUCERS if self.exchange.active else WARM_UPS
            return Captured(function, [*state, *self.scaling.state], self.capture_stream, warm_ups)
        return lambda batch, slot: function(batch)

    def results(self) -> Results:
        """A new store for the outputs of steps."""
        return BufferedResults(self) if self.cuda else CopiedResults(self)


def cache_autocast() -> None:
    """Let repeats after the first take graphs with autocast from the compilation cache of the run.

    PyTorch 2.13 traces them again in each process: it does not list these two private functions as safe.
    Their arguments are in the cached graph's key (pytorch/pytorch#191106), so a fixed key of their own does.
    """
    names = (f"torch.amp.autocast_mode.{name}" for name in ("_enter_autocast", "_exit_autocast"))
    marked = torch._inductor.config.unsafe_marked_cacheable_functions
    torch._inductor.config.unsafe_marked_cacheable_functions = {**marked, **dict.fromkeys(names, "1")}


class Adam:
    """Adam after Kingma and Ba with epsilon added after the bias correction; dense on every parameter.

    ``w -= rate * mhat / (sqrt(vhat) + epsilon)`` with ``mhat = m / (1 - beta1**t)``, ``vhat`` likewise.
    """

    skip: Tensor | None = None  # on the device, 0 or 1: set by the loss scaling of fp16

    def __init__(self, parameters: Sequence[Tensor], hyper: Mapping[str, str]) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self._beta1, self._beta2 = float(hyper["beta1"]), float(hyper["beta2"])
        self._epsilon = float(hyper["epsilon"])
        # A captured graph reads the rate from the device.
        self._rate_on_device = (
            torch.zeros((), dtype=torch.float32, device=device) if device.type == "cuda" else None
        )
        self._value: float | None = None
        self._steps = [torch.zeros((), dtype=torch.float32, device=device) for _ in self.parameters]
        self._moments = [torch.zeros_like(one, requires_grad=False) for one in self.parameters]
        self._squares = [torch.zeros_like(one, requires_grad=False) for one in self.parameters]
        self.state = [*self._steps, *self._moments, *self._squares]

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        if rate == self._value:
            return
        self._value = rate
        if self._rate_on_device is not None:
            self._rate_on_device.fill_(rate)  # rounds to float32

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.pytorch.scaling.Optimiser`."""
        # torch.optim.Adam calls the same function, but its constructor imports the compiler for a second.
        adam(
            self.parameters,
            list(gradients),
            self._moments,
            self._squares,
            [],
            self._steps,
            fused=True,
            found_inf=self.skip,
            lr=as_float32(self._value or 0.0) if self._rate_on_device is None else self._rate_on_device,
            beta1=self._beta1,
            beta2=self._beta2,
            eps=self._epsilon,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )

    def reset(self) -> None:
        """Set every moment and the step count to zero."""
        torch._foreach_zero_(self.state)


class Momentum:
    """SGD with momentum by PyTorch's formula: ``v = momentum * v + g; w -= rate * v``, one kernel for all.

    ``decayed`` are the indices of the parameters to whose gradient ``weight_decay * w`` is added first.
    """

    skip: Tensor | None = None  # on the device, 0 or 1: set by the loss scaling of fp16

    def __init__(
        self, parameters: Sequence[Tensor], hyper: Mapping[str, str], decayed: Sequence[int] = ()
    ) -> None:
        self.parameters = list(parameters)
        self._momentum = float(hyper["momentum"])
        self.state = [torch.zeros_like(parameter, requires_grad=False) for parameter in self.parameters]
        self._decay = float(hyper["weight_decay"]) if decayed else 0.0
        self._decayed = list(decayed)
        self._others = sorted(set(range(len(self.parameters))) - set(decayed))
        first = self.parameters[0]
        # On a GPU the fused kernel takes the rate as a float32, for parameters of every type.
        dtype = torch.float32 if first.is_cuda else first.dtype
        self._rate = torch.zeros((), dtype=dtype, device=first.device)

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self._rate.fill_(as_float32(rate))

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.pytorch.scaling.Optimiser`."""
        for decay, indices in ((self._decay, self._decayed), (0.0, self._others)):
            parameters = [self.parameters[at] for at in indices]
            sgd(
                parameters,
                [with_layout_of(gradients[at], self.parameters[at]) for at in indices],
                [self.state[at] for at in indices],
                fused=True,
                found_inf=self.skip,
                lr=self._rate,
                momentum=self._momentum,
                weight_decay=decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )

    def reset(self) -> None:
        """Set every velocity to zero."""
        torch._foreach_zero_(self.state)


def with_layout_of(gradient: Tensor, parameter: Tensor) -> Tensor:
    """``gradient`` in ``parameter``'s memory layout: fused optimisers read both in the order of memory."""
    if gradient.stride() == parameter.stride():
        return gradient
    strides = zip(gradient.shape, gradient.stride(), parameter.stride(), strict=True)
    if all(size == 1 or one == other for size, one, other in strides):  # strides along size 1 are unused
        return gradient.as_strided(parameter.shape, parameter.stride())
    return torch.empty_like(parameter).copy_(gradient)


class Descent:
    """SGD without momentum: ``w -= rate * g``; its only state is ``rate``, on the device."""

    skip: Tensor | None = None  # on the device, 0 or 1: set by the loss scaling of fp16
    state: Sequence[Tensor] = ()

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        first = self.parameters[0]
        self.rate = torch.zeros((), dtype=first.dtype, device=first.device)

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self.rate.fill_(rate)

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.pytorch.scaling.Optimiser`."""
        directions = list(gradients) if self.skip is None else zero_where(self.skip, gradients)
        descend(self.parameters, directions, self.rate)

    def reset(self) -> None:
        """No effect: there is no state."""


def descend(parameters: list[Tensor], directions: list[Tensor], rate: Tensor) -> None:
    """``parameters -= rate * directions``, in place."""
    if rate.device.type == "cpu":  # a number avoids a temporary as large as the model
        torch._foreach_sub_(parameters, directions, alpha=rate.item())
    else:  # a captured graph reads the tensor at each replay
        torch._foreach_sub_(parameters, torch._foreach_mul(directions, rate))


def _norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    """The norm of each; on a CPU by rows if long: a float32 sum of millions of squares has only 4 digits."""

    def short(gradient: Tensor) -> Tensor:
        if gradient.is_cuda or gradient.ndim == 1 or gradient.numel() <= _LONG_SUM:
            return gradient
        return torch.linalg.vector_norm(gradient, dim=tuple(range(1, gradient.ndim)))

    return list(torch._foreach_norm([short(gradient) for gradient in gradients]))


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float) -> tuple[list[Tensor], Tensor]:
    """The gradients times ``limit / max(norm, limit)``, and the norm over all of them before clipping.

    Equal to ``tf.clip_by_global_norm``; ``torch.nn.utils.clip_grad_norm_`` adds 1e-6 to the norm.
    """
    norm = torch.linalg.vector_norm(torch.stack(_norms(gradients)))
    scale = limit / norm.clamp(min=limit)
    return list(torch._foreach_mul(list(gradients), scale)), norm
