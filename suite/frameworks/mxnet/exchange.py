"""The exchange between the ranks of a training job: MXNet's parameter server, synchronous.

It is the kvstore ``dist_sync`` or ``dist_device_sync``. The parent of the ranks of node 0 starts a scheduler
and a server (``traits.py``). The processes of one node reach each other over the loopback interface: a
container without a network suffices.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import Any

import mxnet as mx
from mxnet.base import _LIB, check_call

from suite.contract import Job
from suite.frameworks.common import variables
from suite.frameworks.mxnet.timestamps import EngineArrivals

Tensor = Any

_MEETING = "DMLC_NUM_WORKER"  # one of the variables through which the ranks meet
# Addresses: they differ between repeats and nodes, which are compared, and are not public.
_ADDRESSES = ("DMLC_PS_ROOT_PORT", "DMLC_PS_ROOT_URI", "DMLC_NODE_HOST")
# Where gradients are added up before they leave a process that drives several devices, which a rank does not.
_STORES = {"cpu": "dist_sync", "device": "dist_device_sync"}
_PREFIXES = ("DMLC_", "MXNET_KVSTORE_", "PS_")


class Exchange:
    """The parameter server of a job; ``active`` is false for ranks that exchange nothing: there is none.

    The server adds up in float32, also arrays of float64, and applies no optimiser: the ranks update their
    weights themselves. RuntimeError if the process has not the variables of a rank.
    """

    operation = "push_pull"

    def __init__(self, job: Job) -> None:
        self.active = job.exchanges
        self._rank, self._size, self._collective = job.rank, job.world_size, job.collective
        self._known: set[str] = set()
        # On a GPU the engine's operations end when their kernels are enqueued.
        self.arrivals = EngineArrivals() if self.active and job.device == "cpu" else None
        if not self.active:
            return
        if (found := os.environ.get(_MEETING)) != str(job.world_size):
            raise RuntimeError(f"{_MEETING}: expected {job.world_size}, found {found}")
        self._store: Any = mx.kv.create(_STORES[job.collective])
        # A rank that fails would wait for the others before it ends, and its parent would not see its end.
        check_call(_LIB.MXKVStoreSetBarrierBeforeExit(self._store.handle, 0))
        # A store that still exists when the libraries are unloaded blocks the end of the process.
        atexit.register(self.close)

    def describe(self) -> dict[str, Any]:
        """Facts of an active exchange: backend, kind of store, version, type, servers, variables."""
        return {
            "backend": self._collective,
            "store": self._store.type,
            "version": mx.__version__,
            "type": "float32",
            "servers": 1,
            "variables": {
                name: value for name, value in variables(*_PREFIXES).items() if name not in _ADDRESSES
            },
        }

    def total(self, name: str, tensor: Tensor) -> Tensor:
        """``tensor``, in place the sum of all ranks' tensors; ``name`` is unique within the model."""
        if self.active:
            self._sum(name, tensor, 0)
        return tensor

    def totals(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``tensors`` by name, dense and summed over all ranks; unchanged if they exchange nothing."""
        if not self.active:
            return dict(tensors)
        dense = {name: tensor.tostype("default") for name, tensor in tensors.items()}
        self.record_arrival(list(dense.values()))
        return {name: self.total(name, tensor) for name, tensor in dense.items()}

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace ``tensors``, the gradients of a model in the order of its layers, by their averages.

        The engine sends a gradient when it is computed, the first layers', which are needed first, before
        others that wait too.
        """
        if not self.active:
            return
        self.record_arrival(tensors)
        for index, tensor in enumerate(tensors):
            self._sum(str(index), tensor, -index)
        for tensor in tensors:
            tensor /= self._size

    def record_arrival(self, gradients: Sequence[Tensor]) -> None:
        """Record that this rank waits for the others, as soon as the last of ``gradients`` is computed.

        Call it before they are exchanged.
        """
        if self.arrivals is not None:
            self.arrivals.record_after(gradients)

    def _sum(self, name: str, tensor: Tensor, priority: int) -> None:
        if name not in self._known:  # in the first step, at once on all ranks
            self._known.add(name)
            self._store.init(name, mx.nd.zeros_like(tensor))
        self._store.pushpull(name, tensor, out=tensor, priority=priority)

    def time_sums(self, count: int, iterations: int) -> tuple[list[int], bool] | None:
        """See :class:`suite.contract.Exchange`. Host memory is not limited: never None."""
        ranks = self._size
        pattern = mx.nd.arange(count) % 127
        own, expected = pattern + self._rank, ranks * pattern + ranks * (ranks - 1) // 2
        times, exact = [], True
        for _ in range(1 + iterations):
            summed = own.copy()
            summed.wait_to_read()
            start = monotonic_ns()
            self._sum(f"sweep {count}", summed, 0)
            summed.wait_to_read()
            times.append(monotonic_ns() - start)
            exact = bool((summed == expected).min().asscalar()) and exact
        return times[1:], exact

    def close(self) -> None:
        """Disconnect this rank."""
        self._store = None
