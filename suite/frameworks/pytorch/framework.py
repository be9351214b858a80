"""PyTorch: device, precision, timestamps and the fast path (one CUDA graph of the whole step)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from suite.common.image_reader import DeviceImages
from suite.common.support import UnsupportedJob, unsupported
from suite.contract import Job
from suite.frameworks.common import BaseFramework, HostTimestamps, Results
from suite.frameworks.pytorch.caches import cache_autocast, cache_by_source
from suite.frameworks.pytorch.exchange import Exchange
from suite.frameworks.pytorch.kept import Kept
from suite.frameworks.pytorch.scaling import scaling_of
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


class Framework(BaseFramework):
    """See :class:`suite.contract.Framework`; other members are for pairs, equally named everywhere."""

    name = "pytorch"

    @staticmethod
    def import_rest(job: Job) -> None:
        """Import the compiler and its settings, which PyTorch imports only when they are used.

        Also compute the digests of PyTorch's and Triton's files that are part of their caches' keys, which
        takes half a second.
        """
        if job.device.startswith("cuda"):
            import_module("torch._inductor.compile_fx" if job.fast else "torch._dynamo")
            if job.fast:
                import_module("torch._inductor.codecache").torch_key()
            import_module("torch._inductor.runtime.triton_compat").triton_key()

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
            cache_by_source()

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
            self.keep_until(copied.synchronize, images)
        return copy

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of ``tensor`` on the host, C-contiguous; half precision as float32."""
        host = tensor.detach().to("cpu", copy=True)
        if host.dtype in (torch.bfloat16, torch.float16):
            host = host.float()
        return np.asarray(host.numpy(), order="C")  # copies again only where the layout differs

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision for bf16 and fp16; otherwise a context without effect."""
        if self.compute_dtype == self.dtype:
            return contextlib.nullcontext()
        # The cache of cast weights would outlive a captured graph.
        return torch.autocast(self.device.type, dtype=self.compute_dtype, cache_enabled=False)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` compiled for a GPU; unchanged on a CPU, where a C++ compiler may be missing.

        Repeats after the first need not trace it again, unless the exchange of gradients splits it.
        """
        if not (self.cuda and self.fast):
            return function
        cache = os.environ.get("XDG_CACHE_HOME")  # of the run
        if cache and not self.exchange.active and Kept.can_keep(function):
            return Kept(function, Path(cache, "traced"))
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
