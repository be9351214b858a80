"""The exchange between the ranks of a training job: ``torch.distributed`` with NCCL on GPUs, Gloo on CPUs.

With the collective ``copy_engine`` the copy engines of the GPUs move gradients, and NCCL adds up the rest.
The ranks of one node meet through a file of the scratch folder and reach each other over the loopback
interface: a container without a network suffices. Those of several nodes meet at rank 0, over TCP.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic_ns
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.nn.parallel import DistributedDataParallel

from suite.common.support import UnsupportedJob
from suite.contract import Job
from suite.frameworks.arrivals import HostArrivals
from suite.frameworks.common import variables
from suite.frameworks.pytorch.arrivals import DeviceArrivals, LastGradient
from suite.frameworks.pytorch.copy_engines import ALONE, CHUNK, CopyEngines, CopySums, padded
from suite.frameworks.pytorch.optimisers import Adam, Momentum
from suite.frameworks.pytorch.scaling import Optimiser

COPY_ENGINE = "copy_engine"
BUCKET_MIB = 25  # of gradients that are exchanged together; PyTorch's default
_SETUP = timedelta(minutes=30)  # ranks may compile and read their data for different times
_MEETING = timedelta(minutes=5)
_STEPS = timedelta(seconds=60)
_PREFIXES = ("GLOO_", "NCCL_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")
_NEVER = 2**31 - 1


class Exchange:
    """The process group of a job; ``active`` is false for ranks that exchange nothing: there is none."""

    operation = "all_reduce"

    def __init__(self, job: Job, device: torch.device) -> None:
        self.active = job.exchanges
        self._by_copies = job.exchanges and job.collective == COPY_ENGINE
        self._chosen_mib = job.bucket_mib  # 0: PyTorch's sizes
        self._engines: CopyEngines | None = None
        self._sums: CopySums | None = None  # of :meth:`totals`
        self._cuda = device.type == "cuda"
        self.arrivals: HostArrivals | DeviceArrivals | None = None
        self._device, self._rank, self._size = device, job.rank, job.world_size
        if not self.active:
            return
        if self._by_copies:
            _require_access(job, device)
        interface = "lo" if job.network is None else job.network.interface
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if self._cuda:
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
            # The thread that watches collectives would disturb the capture of a CUDA graph (PyTorch's notes).
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        store: Any
        if job.network is None:
            store = dist.FileStore(str(Path(job.scratch_dir) / "ranks"), job.world_size)
        else:
            where = job.network.node_0, job.network.exchange_port, job.world_size
            store = dist.TCPStore(*where, is_master=job.rank == 0, timeout=_MEETING, wait_for_workers=False)
        dist.init_process_group(
            "nccl" if self._by_copies else job.collective,
            store=store,
            rank=job.rank,
            world_size=job.world_size,
            timeout=_SETUP,
            device_id=device if self._cuda else None,
        )
        self.arrivals = DeviceArrivals(device) if self._cuda else HostArrivals()

    @property
    def _bucket_mib(self) -> int:
        return self._chosen_mib or BUCKET_MIB

    def describe(self) -> dict[str, Any]:
        """Facts of an active exchange: backend, its version (Gloo has none), buckets and variables."""
        facts: dict[str, Any] = {
            "backend": COPY_ENGINE if self._by_copies else dist.get_backend(),
            "version": ".".join(map(str, torch.cuda.nccl.version())) if self._cuda else None,
            "type": "float32",
            "variables": variables(*_PREFIXES),
            "bucket_bytes": self._bucket_mib << 20,
        }
        if self._by_copies:
            return facts | {"alone_bytes": ALONE, "chunk_bytes": CHUNK}
        return facts | {"gradient_as_bucket_view": True, "static_graph": False}

    def averaged(self, module: nn.Module, stream: torch.cuda.Stream | None) -> nn.Module:
        """``module``, whose ``backward()`` averages the gradients over the ranks if the exchange is active.

        ``stream`` is the stream that CUDA graphs are captured on. The ranks' weights are equal by
        construction, and their digests are logged: a broadcast would hide a rank that differs. The module
        has no buffers: running statistics stay per rank.
        """
        if not self.active:
            return module
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream())
        # Hooks run on the stream that is current here: on another one a capture would not contain them.
        # Gradients are None before each backward(), which then writes each once; the copy into its bucket
        # divides it by the number of ranks, and with views there is no copy back. Zeroed gradients would be
        # added to, which reads and writes all of them once more. A static graph was measured: no faster.
        parameters = list(module.parameters())
        with torch.cuda.stream(stream):
            LastGradient(parameters, self.record_arrival)
            if self._by_copies:
                self._engines = CopyEngines(parameters)
                return module
            wrapped = DistributedDataParallel(
                module, init_sync=False, bucket_cap_mb=self._bucket_mib, gradient_as_bucket_view=True
            )
        # Every 100th step would be timed, which a capture forbids.
        wrapped._set_ddp_runtime_logging_sample_rate(_NEVER)
        return wrapped

    def compiler(self) -> Any:
        """The compiler of losses: PyTorch's own, with copy engines after a split into parts, one a bucket.

        A compiled function returns all its gradients at the end, so that none could be exchanged before. What
        is compiled within DistributedDataParallel is split; this is the same split. Parts are compiled into
        slower code than the whole, which a bucket above the size of the model leaves in one piece.
        """
        if not self._by_copies:
            return "inductor"
        from torch._dynamo.backends.distributed import DDPOptimizer
        from torch._dynamo.backends.registry import lookup_backend

        first = self._chosen_mib << 20 or None  # None: PyTorch's 1 MiB
        return DDPOptimizer(self._bucket_mib << 20, lookup_backend("inductor"), first).compile_fn

    def shard_update(self, optimiser: Optimiser, limit: float | None) -> None:
        """With copy engines, let each rank update a part of the weights and send it to the others.

        :class:`Momentum` does so during ``backward()``; with a ``limit`` of the norm of all gradients
        :class:`Adam` does so after it. Other optimisers update all weights on each rank.
        """
        if self._engines is not None and isinstance(optimiser, Momentum if limit is None else Adam):
            self._engines.optimiser, self._engines.limit = optimiser, limit

    @property
    def updates_weights(self) -> bool:
        """Whether to call :meth:`backward_and_update`: after one ``backward()``, which shows the order."""
        return self._engines is not None and self._engines.updates

    def backward_and_update(self, loss: Tensor) -> Tensor | None:
        """``loss.backward()``, and an update by the mean over the ranks; its norm if there is a limit."""
        assert self._engines is not None
        return self._engines.backward_and_update(loss / self._size)

    def backward(self, loss: Tensor) -> None:
        """``loss.backward()``; gradients of the averaged module become those of the mean over the ranks."""
        if self._engines is None:
            loss.backward()
        else:
            (loss / self._size).backward()
            self._engines.finish()

    def record_arrival(self) -> None:
        """Record that this rank has computed the gradients of its step and now waits for the others."""
        if self.arrivals is not None:
            self.arrivals.record()

    def total(self, tensor: Tensor) -> Tensor:
        """``tensor``, in place the sum of all ranks' tensors."""
        if self.active:
            dist.all_reduce(tensor)
        return tensor

    def held_bytes(self) -> int:
        """Memory of the device that the sums of copy engines hold."""
        sums = self._sums, None if self._engines is None else self._engines.sums
        return sum(one.held_bytes for one in sums if one is not None)

    def totals(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of all ranks' ``tensors``, until the next call; ``tensors`` may be overwritten."""
        if not self._by_copies:
            return [self.total(tensor) for tensor in tensors]
        if self._sums is None:
            self._sums = CopySums([tensor.numel() for tensor in tensors], tensors[0])
        return self._sums.add_up(tensors)

    def time_sums(self, count: int, iterations: int) -> tuple[list[int], bool] | None:
        """See :class:`suite.contract.Exchange`."""
        ranks, room = self._size, torch.ones(1, device=self._device)
        try:
            pattern = torch.arange(count, dtype=torch.int32, device=self._device).remainder_(127).float()
            own, expected = pattern + self._rank, pattern.mul_(ranks).add_(ranks * (ranks - 1) // 2)
            summed = torch.empty_like(own)
            torch.equal(summed, expected)  # it needs memory too
            if self._by_copies:
                torch.empty(2 * padded(count, ranks), device=self._device)  # as much as the sums will take
        except torch.OutOfMemoryError:
            room.zero_()
        if self._by_copies:
            torch.cuda.empty_cache()  # the sums take their memory beside PyTorch's
        if int(self.total(room)) < ranks:
            return None
        sums = CopySums([count], own) if self._by_copies else None
        times, exact = [], True
        for _ in range(1 + iterations):
            summed.copy_(own)
            self._wait()
            start = monotonic_ns()
            found = self.total(summed) if sums is None else sums.add_up([own])[0]
            self._wait()
            times.append(monotonic_ns() - start)
            exact = torch.equal(found, expected) and exact
        return times[1:], exact

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)

    def expect_steps(self) -> None:
        """From now on the ranks run the same steps: one that keeps another waiting for 60 s is lost.

        Only on a CPU: nothing watches NCCL, and the harness ends a run on GPUs that hangs.
        """
        if self.active and not self._cuda:
            _set_pg_timeout(_STEPS)


def _require_access(job: Job, device: torch.device) -> None:
    """UnsupportedJob unless the GPUs of the ranks, all of one machine, can write each other's memory."""
    others = (rank for rank in range(job.world_size) if rank != device.index)
    if lacking := [rank for rank in others if not torch.cuda.can_device_access_peer(device, rank)]:
        raise UnsupportedJob(
            f"collective: expected GPUs that can write each other's memory, found {device} and "
            f"cuda:{lacking[0]}, which cannot; use nccl"
        )


def lost_rank(error: RuntimeError) -> bool:
    """Whether ``error`` means that another rank has ended or hangs."""
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)
