"""JAX: device, precision, optimisers as pure functions, and the fast path (``jax.jit``)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from numpy.typing import NDArray

from suite.common.image_reader import DeviceImages
from suite.common.support import UnsupportedJob, unsupported
from suite.contract import Job
from suite.frameworks.common import KEEP, BaseFramework, HostTimestamps, Results, as_float32
from suite.frameworks.jax.exchange import Exchange
from suite.frameworks.jax.scaling import scaling_of
from suite.frameworks.jax.traits import TRAITS

Tensor = Any
Batch = dict[str, Tensor]
Tensors = Sequence[Tensor]
State = Any  # a tree of tensors

_UNOPTIMISED = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,  # their code takes twice as long to compile; until JAX 0.10
}
# XLA gives cuDNN the constant factors of a convolution and of what is added to it as float32 numbers, in
# float64 too: behind the average pools of inception_v3 gradients were wrong by 1e-9 to 3e-8 (JAX 0.11.2).
_EXACT_FACTORS = "--xla_disable_hlo_passes=cudnn-fused-convolution-rewriter"


class Framework(BaseFramework):
    """See :class:`suite.contract.Framework`; other members are for pairs, equally named everywhere."""

    name = "jax"

    def __init__(self, job: Job) -> None:
        if reason := unsupported(job.key, job.device):
            raise UnsupportedJob(reason)
        super().__init__()
        self.cuda = job.device.startswith("cuda")
        self.fast = job.fast
        self.timestamp_kind = TRAITS.timestamp_kind["cuda" if self.cuda else "cpu"]
        self.dtype = jnp.dtype("float64" if job.key.precision == "fp64" else "float32")
        types = {"bf16": jnp.bfloat16, "fp16": jnp.float16}
        self.compute_dtype = jnp.dtype(types.get(job.key.precision, self.dtype))
        self._timestamps = HostTimestamps()
        # Dropout differs between ranks.
        self.seed = (job.seed + job.rank) % 2**64
        self._threads = job.threads
        self._set_flags(job)
        self.exchange = Exchange(job, self.cuda)  # the ranks must meet before the first use of a device
        self.arrivals = self.exchange.arrivals
        self._choose_device(job)
        self.scaling = scaling_of(job)

    def _set_flags(self, job: Job) -> None:
        """Set what JAX reads once, before the first use of a device, and the precision of products."""
        os.environ.setdefault("NPROC", str(job.threads))  # the size of the CPU's thread pool
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        flags = os.environ.get("XLA_FLAGS", "").split()
        if job.deterministic:
            flags.append("--xla_gpu_deterministic_ops=true")
        if job.key.precision == "fp64":
            flags.append(_EXACT_FACTORS)
        os.environ["XLA_FLAGS"] = " ".join(flags)
        cache = os.environ.get("XDG_CACHE_HOME")
        settings: dict[str, Any] = {
            "jax_platforms": "cuda,cpu" if self.cuda else "cpu",
            # Gloo's sums must begin in one order on all ranks.
            "jax_cpu_enable_async_dispatch": not job.exchanges,
            "jax_enable_x64": job.key.precision == "fp64",
            "jax_default_matmul_precision": "tensorfloat32" if job.key.precision == "tf32" else "highest",
            # The repeats of a run share compiled programs. With XLA's own caches this folder's path would be
            # part of their keys, so that no later run (reuse_compiled) would find them.
            "jax_compilation_cache_dir": f"{cache}/jax" if cache else None,
            "jax_persistent_cache_enable_xla_caches": "",
            "jax_persistent_cache_min_compile_time_secs": 0.0,
            "jax_persistent_cache_min_entry_size_bytes": -1,
        }
        for name, value in settings.items():
            jax.config.update(name, value)

    def _choose_device(self, job: Job) -> None:
        try:
            devices = jax.local_devices(backend="cuda" if self.cuda else "cpu")
            # An active exchange has made this rank's GPU the only one that JAX uses. Without an exchange JAX
            # (0.11) cannot run on one of another index than 0 alone ("Device id 1 is out of range").
            self.device = devices[0 if self.exchange.active else job.device_index]
        except (RuntimeError, IndexError) as error:
            raise UnsupportedJob(
                f"device: expected a usable GPU for {job.device}, found none in this build: {error}"
            ) from error
        if self.cuda and (reason := unsupported(job.key, job.device, self.device.compute_capability)):
            raise UnsupportedJob(reason)
        jax.config.update("jax_default_device", self.device)

    def describe(self) -> dict[str, Any]:
        """Versions, device, threads, flags, and the exchange between ranks."""
        facts: dict[str, Any] = {
            "version": jax.__version__,
            "device": "cuda" if self.cuda else "cpu",
            "device_name": self.device.device_kind if self.cuda else None,
            "cuda": None,
            "cudnn": None,
            "threads": self._threads,
            "tf32": jax.config.jax_default_matmul_precision == "tensorfloat32",
            "compute_dtype": self.compute_dtype.name,
            "fast_path": "jit" if self.fast else "off",
        }
        if self.cuda:
            facts |= _cuda_versions()
            facts["capability"] = self.device.compute_capability
        if self.exchange.active:
            facts["exchange"] = self.exchange.describe()
        return facts

    def synchronize(self) -> None:
        """Wait until every tensor exists."""
        jax.block_until_ready(jax.live_arrays())

    def completed(self, tree: Any) -> Any:
        """``tree``, on a CPU once its tensors exist: timestamps are taken on the host's clock there.

        XLA computes a step of some milliseconds 15 % faster in its own thread, which this waits for, than in
        that of the call, without ``jax_cpu_enable_async_dispatch`` (ncf infer on 2 cores, JAX 0.10.2).
        """
        return tree if self.cuda else jax.block_until_ready(tree)

    def memory(self) -> dict[str, int | None]:
        """The peak of bytes that tensors held on the device."""
        statistics = self.device.memory_stats() if self.cuda else None
        return {"peak_device_bytes": int(statistics["peak_bytes_in_use"]) if statistics else None}

    def tensor(self, array: NDArray[Any] | DeviceImages) -> Tensor:
        """A copy of ``array`` on the device; floating-point values in the type of the parameters."""
        if isinstance(array, DeviceImages):
            copy = jnp.copy(jax.device_put(jax.dlpack.from_dlpack(array), self.device))
            self.keep_until(copy.block_until_ready, array)
            return copy
        dtype = self.dtype if np.asarray(array).dtype.kind == "f" else None
        # On the CPU a tensor may share the memory of an array.
        return self._copied(np.array(array, dtype, order="C", copy=None if self.cuda else True))

    def _copied(self, tree: Any) -> Any:
        copies = jax.device_put(tree, self.device)
        # The CPU copies large arrays on a thread, and a step whose inputs are not there yet runs there too.
        return copies if self.cuda else jax.block_until_ready(copies)

    def put(self, tree: Any) -> Any:
        """Copies of the tensors and arrays of ``tree`` on the device.

        They are committed to it, as the results of a step are: otherwise the second step is compiled again.
        """
        return self._copied(jax.tree.map(jnp.array, tree))

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """``tensor`` (this rank's part of it) on the host, C-contiguous; half as float32."""
        if not tensor.is_fully_addressable:
            tensor = tensor.addressable_data(0)
        # On the CPU an array may share the memory of a tensor.
        host = np.array(tensor, order="C", copy=None if self.cuda else True)
        return host.astype(np.float32) if host.dtype in (jnp.bfloat16, np.float16) else host

    def compute(self, tensor: Tensor) -> Tensor:
        """``tensor`` in the compute type: bf16 or fp16 in mixed precision."""
        return jnp.asarray(tensor, self.compute_dtype)

    def make_fast(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Callable[..., Any]:
        """``function``, a pure one, compiled for each set of shapes; it may reuse the arguments ``donate``.

        Without the fast path it is compiled without optimisation and reuses nothing. XLA would compile the
        operations of a function that is not compiled as a whole one by one, which takes ten times as long.
        """
        if self.fast:
            return jax.jit(function, donate_argnums=donate)
        return jax.jit(function, compiler_options=known_options(_UNOPTIMISED))

    def results(self) -> Results:
        """A new store for the outputs of steps."""
        return PinnedResults(self) if self.cuda else Results(self)


def known_options(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Those compile options of ``wanted`` that this version of XLA has: it refuses to compile with others."""
    return {name: value for name, value in wanted.items() if _has_option(name, value)}


@cache
def _has_option(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" in str(error):
            return False
        raise
    return True


class PinnedResults(Results):
    """Outputs of steps on a GPU, each copied to pinned memory of the host while later steps compute."""

    def __init__(self, framework: Framework) -> None:
        super().__init__(framework)
        self._pinned = SingleDeviceSharding(framework.device, memory_kind="pinned_host")
        self._reserved = set[Any]()  # shapes and types

    def keep(self, tensor: Tensor) -> None:
        """See :class:`suite.frameworks.common.Results`.

        The first output of a shape reserves memory for those of a window: XLA's pool of pinned memory doubles
        when it is full, which takes some 100 ms for 256 MB, and keeps what it has.
        """
        if (like := (tensor.shape, tensor.dtype)) not in self._reserved:
            self._reserved.add(like)
            jax.block_until_ready([jax.device_put(tensor, self._pinned) for _ in range(KEEP)])
        super().keep(jax.device_put(tensor, self._pinned))


def _cuda_versions() -> dict[str, str | None]:
    """The versions of CUDA and cuDNN that the plugin was built for; null if it does not state them."""
    try:
        from jax._src.lib import cuda_versions
    except ImportError:
        return {"cuda": None, "cudnn": None}
    cuda, cudnn = cuda_versions.cuda_runtime_build_version(), cuda_versions.cudnn_build_version()
    return {"cuda": f"{cuda // 1000}.{cuda % 1000 // 10}", "cudnn": str(cudnn)}


class Optimiser:
    """A pure optimiser: ``initial`` makes its state, and ``updated`` computes new parameters and state.

    ``rate`` is the learning rate of the next update, which the pair passes to the compiled step.
    """

    rate = 0.0

    def __init__(self, parameters: Tensors) -> None:
        self.dtype = parameters[0].dtype

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self.rate = as_float32(rate)

    def initial(self, parameters: Tensors) -> State:
        """The state before the first update of ``parameters``."""
        raise NotImplementedError

    def updated(
        self, parameters: Tensors, gradients: Tensors, state: State, rate: Tensor
    ) -> tuple[list[Tensor], State]:
        """The parameters after one update, and the new state."""
        raise NotImplementedError


class Adam(Optimiser):
    """Adam after Kingma and Ba with epsilon added after the bias correction; dense on every parameter.

    ``w -= rate * mhat / (sqrt(vhat) + epsilon)`` with ``mhat = m / (1 - beta1**t)``, ``vhat`` likewise.
    """

    def __init__(self, parameters: Tensors, hyper: Mapping[str, str]) -> None:
        super().__init__(parameters)
        self.beta1, self.beta2 = float(hyper["beta1"]), float(hyper["beta2"])
        self.epsilon = float(hyper["epsilon"])

    def initial(self, parameters: Tensors) -> State:
        """See :class:`Optimiser`: the number of updates and two moments of each parameter."""
        zeros = [[jnp.zeros_like(parameter) for parameter in parameters] for _ in range(2)]
        return (jnp.zeros((), self.dtype), *zeros)

    def updated(
        self, parameters: Tensors, gradients: Tensors, state: State, rate: Tensor
    ) -> tuple[list[Tensor], State]:
        """See :class:`Optimiser`."""
        step, means, squares = state
        step = step + 1
        # 1 - beta**t, without the rounding of a power next to 1.
        first, second = (-jnp.expm1(step * math.log(beta)) for beta in (self.beta1, self.beta2))
        means = [
            self.beta1 * mean + (1 - self.beta1) * one for mean, one in zip(means, gradients, strict=True)
        ]
        squares = [
            self.beta2 * square + (1 - self.beta2) * one * one
            for square, one in zip(squares, gradients, strict=True)
        ]
        size, root = rate / first, jnp.sqrt(second)
        moved = [
            parameter - size * mean / (jnp.sqrt(square) / root + self.epsilon)
            for parameter, mean, square in zip(parameters, means, squares, strict=True)
        ]
        return moved, (step, means, squares)


class Momentum(Optimiser):
    """SGD with momentum by PyTorch's formula: ``v = momentum * v + g; w -= rate * v``.

    ``decayed`` are the indices of the parameters to whose gradient ``weight_decay * w`` is added first.
    """

    def __init__(self, parameters: Tensors, hyper: Mapping[str, str], decayed: Sequence[int] = ()) -> None:
        super().__init__(parameters)
        self.momentum = float(hyper["momentum"])
        self.decay = float(hyper["weight_decay"]) if decayed else 0.0
        self.decayed = frozenset(decayed)

    def initial(self, parameters: Tensors) -> State:
        """See :class:`Optimiser`: the velocity of each parameter."""
        return [jnp.zeros_like(parameter) for parameter in parameters]

    def updated(
        self, parameters: Tensors, gradients: Tensors, state: State, rate: Tensor
    ) -> tuple[list[Tensor], State]:
        """See :class:`Optimiser`."""
        moved, velocities = [], []
        for at, (parameter, gradient, velocity) in enumerate(zip(parameters, gradients, state, strict=True)):
            decayed = gradient + self.decay * parameter if at in self.decayed else gradient
            velocities.append(self.momentum * velocity + decayed)
            moved.append(parameter - rate * velocities[-1])
        return moved, velocities


class Descent(Optimiser):
    """SGD without momentum: ``w -= rate * g``; it has no state."""

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        self.rate = rate

    def initial(self, parameters: Tensors) -> State:
        """See :class:`Optimiser`: nothing."""
        del parameters
        return ()

    def updated(
        self, parameters: Tensors, gradients: Tensors, state: State, rate: Tensor
    ) -> tuple[list[Tensor], State]:
        """See :class:`Optimiser`."""
        pairs = zip(parameters, gradients, strict=True)
        return [parameter - rate * gradient for parameter, gradient in pairs], state


def global_norm(gradients: Tensors) -> Tensor:
    """The Euclidean norm over all of ``gradients``."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))


def clip_by_global_norm(gradients: Tensors, limit: float) -> tuple[list[Tensor], Tensor]:
    """The gradients times ``limit / max(norm, limit)``, and the norm over all of them before clipping."""
    norm = global_norm(gradients)
    scale = limit / jnp.maximum(norm, limit)
    return [gradient * scale for gradient in gradients], norm
