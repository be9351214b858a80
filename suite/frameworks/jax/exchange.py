"""The exchange between the ranks of a training job: ``psum`` in ``shard_map`` over one device of each rank.

NCCL on GPUs, Gloo on CPUs. Tensors are global: parameters and optimiser are equal on all ranks (``SHARED``);
batches, carried states and losses differ (``SPLIT``) and are joined along their first axis. A ``jit`` over a
global batch without ``shard_map`` would normalise by the statistics of the global batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns, sleep
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import cache_key, distributed
from jax._src.lib import _jax
from jax._src.xla_bridge import make_cpu_client
from jax.extend.backend import register_backend_factory
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from suite.contract import Job
from suite.contract.network import unused_ports
from suite.frameworks.arrivals import HostArrivals
from suite.frameworks.common import variables

Tensor = Any

SHARED, SPLIT = PartitionSpec(), PartitionSpec("ranks")
_HOST = "127.0.0.1"
_SETUP_S = 1800  # ranks may import and read their data for different times
_POLL_S = 0.02
_PREFIXES = ("NCCL_", "GLOO_", "JAX_", "XLA_")
_LOST = ("connection closed by peer", "connection reset", "socket closed", "unavailable", "gloo", "nccl")


class Exchange:
    """The ranks of a job; ``active`` is false for ranks that exchange nothing: they do not meet."""

    operation = "all_reduce"

    def __init__(self, job: Job, cuda: bool) -> None:
        self.active = job.exchanges
        self.arrivals = HostArrivals() if self.active and not cuda else None
        self._rank, self._size, self._collective = job.rank, job.world_size, job.collective
        self._cuda = cuda
        if not self.active:
            return
        interface = "lo" if job.network is None else job.network.interface
        register_backend_factory("cpu", partial(_cpu_client, interface), priority=0, fail_quietly=False)
        if cuda:
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        coordinator = _coordinator(job)
        jax.distributed.initialize(
            coordinator_address=coordinator,
            coordinator_bind_address=coordinator,  # usually that of all interfaces
            num_processes=job.world_size,
            process_id=job.rank,
            local_device_ids=[job.device_index],
            initialization_timeout=_SETUP_S,
        )
        self.mesh = Mesh(np.array(jax.devices()), ("ranks",))
        if not cuda:
            _share_compiled_programs()
            # Gloo connects in the first exchange, and waits for 30 s at most. Ranks may compile for longer.
            self._compiled_total()(self.split(jnp.zeros(1))).block_until_ready()

    def describe(self) -> dict[str, Any]:
        """Facts of an active exchange: backend (JAX does not state its version) and variables."""
        return {
            "backend": self._collective,
            "version": None,
            "type": "float32",
            "bucket_bytes": None,  # XLA joins gradients
            "variables": variables(*_PREFIXES),
        }

    def split(self, tree: Any) -> Any:
        """The global tensors of which those of ``tree``, at least one-dimensional, are this rank's parts."""
        return self._joined(tree, SPLIT, self._size) if self.active else tree

    def shared(self, tree: Any) -> Any:
        """The global tensors that equal those of ``tree`` on every rank."""
        return self._joined(tree, SHARED, 1) if self.active else tree

    def _joined(self, tree: Any, part: PartitionSpec, times: int) -> Any:
        sharding = NamedSharding(self.mesh, part)

        def join(tensor: Tensor) -> Tensor:
            tensor = jnp.asarray(tensor)
            shape = (times * tensor.shape[0], *tensor.shape[1:]) if times > 1 else tensor.shape
            return jax.make_array_from_single_device_arrays(shape, sharding, [tensor])

        return jax.tree.map(join, tree)

    def local(self, tree: Any) -> Any:
        """The rank's parts of the global tensors of ``tree``."""
        return jax.tree.map(lambda tensor: tensor.addressable_data(0), tree) if self.active else tree

    def parallel(self, function: Callable[..., Any], inputs: Any, outputs: Any) -> Callable[..., Any]:
        """``function`` of each rank's tensors as one of global tensors; which are SHARED and which SPLIT."""
        if not self.active:
            return function
        mapped: Callable[..., Any] = jax.shard_map(
            function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False
        )
        return mapped

    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each of ``tensors``, of one type, summed over all ranks; inside :meth:`parallel`.

        On a CPU they travel as one tensor: Gloo sums each by itself. On a GPU XLA joins them.
        """
        if not self.active:
            return list(tensors)
        if self._cuda:
            return list(jax.lax.psum(list(tensors), "ranks"))
        joined, split = ravel_pytree(list(tensors))
        return list(split(jax.lax.psum(joined, "ranks")))

    def averaged(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each of ``tensors`` averaged over all ranks; inside :meth:`parallel`."""
        return [total / self._size for total in self.total(tensors)] if self.active else list(tensors)

    def _compiled_total(self) -> Callable[[Tensor], Tensor]:
        """The sum over all ranks of a tensor that is split over them."""
        total: Callable[[Tensor], Tensor] = jax.jit(
            self.parallel(lambda tensor: self.total([tensor])[0], (SPLIT,), SHARED)
        )
        return total

    def time_sums(self, count: int, iterations: int) -> tuple[list[int], bool] | None:
        """See :class:`suite.contract.Exchange`."""
        ranks, total = self._size, self._compiled_total()
        pattern = np.arange(count, dtype=np.float32) % 127
        expected = ranks * pattern + ranks * (ranks - 1) // 2
        room = np.ones(1, np.float32)
        part = room
        try:
            part = jnp.asarray(pattern + self._rank).block_until_ready()
        except jax.errors.JaxRuntimeError:
            room = np.zeros(1, np.float32)
        one = self.split(jnp.asarray(room))
        if self.local(total(one))[0] < ranks:
            return None
        part = self.split(part)
        times, exact = [], True
        for _ in range(1 + iterations):
            total(one).block_until_ready()  # no rank waits, within its time, for another's check on the host
            start = monotonic_ns()
            found = total(part).block_until_ready()
            times.append(monotonic_ns() - start)
            exact = bool((np.asarray(self.local(found)) == expected).all()) and exact
        return times[1:], exact


def _cpu_client(interface: str) -> Any:
    """JAX's client of the CPU, whose Gloo uses ``interface``; JAX creates one beside that of GPUs, too.

    JAX itself lets Gloo look for the address of the host's name, which a container without a network has not.
    """
    client = distributed.global_state.client
    collectives = _jax.make_gloo_tcp_collectives(distributed_client=client, interface=interface)
    return make_cpu_client(collectives)


def _share_compiled_programs() -> None:
    """Let each rank on a CPU find in the compilation cache what rank 0 compiled: only rank 0 writes there.

    A part of JAX's keys is the topology of the devices, in which that of CPUs contains the number of the rank
    (JAX 0.10). Without this all other ranks compile again in each repeat, and rank 0 waits for them.
    """
    keys: Any = cache_key
    keys._hash_accelerator_config = keys._hash_devices


def _coordinator(job: Job) -> str:
    """The address at which rank 0 lets the ranks meet: a free port that it writes to a file for one node.

    TimeoutError if rank 0 writes none for 30 minutes.
    """
    if job.network is not None:
        return f"{job.network.node_0}:{job.network.exchange_port}"
    file = Path(job.scratch_dir) / "coordinator"
    if job.rank == 0:
        draft = file.with_suffix(".draft")
        draft.write_text(f"{_HOST}:{unused_ports(_HOST, 1)[0]}")
        draft.replace(file)  # the other ranks see a whole file
    until = monotonic() + _SETUP_S
    while not file.exists():
        if monotonic() > until:
            raise TimeoutError(f"ranks: expected an address of rank 0 in {_SETUP_S} s, found none")
        sleep(_POLL_S)
    return file.read_text()


def lost_rank(error: Exception) -> bool:
    """Whether ``error`` means that another rank has ended or hangs."""
    text = str(error).lower()
    return any(part in text for part in _LOST)
