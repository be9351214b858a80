"""Steps of PyTorch: timestamps on a GPU, capture as CUDA graphs, and stores of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from suite.frameworks.common import KEEP, Results

WARM_UPS = 3  # runs before a capture
WARM_UPS_OF_REDUCERS = 11  # DistributedDataParallel rebuilds its buckets in them (notes on CUDA graphs)

Batch = dict[str, Tensor]
Step = Callable[[Batch], Tensor]


class CudaTimestamps:
    """Device events; durations are sums over neighbours, since ``elapsed_time`` is a float32."""

    def prepare(self, count: int) -> None:
        """Create the events and record each once, which completes the driver's first-use work."""
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        for event in self._events:
            event.record()
        torch.cuda.synchronize()

    def record_timestamp(self, index: int) -> None:
        """Record event ``index`` on the current stream."""
        self._events[index].record()

    def read(self, count: int) -> list[int]:
        """Cumulative nanoseconds from event 0 to events 1..count-1."""
        total, timestamps = 0, []
        for before, after in zip(self._events[: count - 1], self._events[1:count], strict=True):
            total += max(1, round(before.elapsed_time(after) * 1e6))
            timestamps.append(total)
        return timestamps


@dataclass(slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    inputs: Batch
    output: Tensor


class Captured:
    """One CUDA graph per staged slot (its own inputs), or per set of shapes (inputs copied in).

    ``function`` runs ``warm_ups`` times on ``stream`` and is captured there; ``state`` is restored before the
    capture.
    """

    def __init__(
        self, function: Step, state: Sequence[Tensor], stream: torch.cuda.Stream, warm_ups: int
    ) -> None:
        self._function, self._state = function, list(state)
        self._stream, self._warm_ups = stream, warm_ups
        self._graphs: dict[Any, _Graph] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, slot: int | None) -> Tensor:
        """Run the step on ``batch``."""
        key = slot if slot is not None else tuple((name, tuple(batch[name].shape)) for name in sorted(batch))
        entry = self._graphs.get(key)
        if entry is None:
            inputs = batch if slot is not None else {name: tensor.clone() for name, tensor in batch.items()}
            entry = self._graphs[key] = self._capture(inputs)
        for name, static in entry.inputs.items():
            if static is not batch[name]:
                static.copy_(batch[name], non_blocking=True)
        entry.graph.replay()
        return entry.output

    def _capture(self, inputs: Batch) -> _Graph:
        saved = [tensor.detach().clone() for tensor in self._state]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(self._warm_ups):
                self._function(inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        with torch.no_grad():
            for tensor, value in zip(self._state, saved, strict=True):
                tensor.copy_(value)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Threads that read images allocate memory at any time, which the usual mode takes for a mistake.
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode=mode):
            output = self._function(inputs)
        return _Graph(graph, inputs, output)


class CopiedResults(Results):
    """The store of outputs on a CPU."""

    def keep(self, tensor: Tensor) -> None:
        """Store a copy: the next step may overwrite ``tensor``."""
        super().keep(tensor.detach().clone())


class BufferedResults(Results):
    """The store of outputs on a GPU: one buffer per shape, with room for a window of steps.

    The copy goes to pinned memory allocated in advance: a copy to other memory would take as long as the
    steps of a fast workload.
    """

    def __init__(self, framework: Any) -> None:
        super().__init__(framework)
        self._buffers: dict[Any, _Buffer] = {}
        self._order: list[tuple[_Buffer, int]] = []
        self._spilled: list[NDArray[Any]] = []

    def keep(self, tensor: Tensor) -> None:
        """Store ``tensor`` as it is now, enqueued behind the work so far."""
        key = (tuple(tensor.shape), tensor.dtype)
        if key not in self._buffers:
            self._buffers[key] = _Buffer(tensor)
        buffer = self._buffers[key]
        if buffer.used == KEEP:  # in a long soak; never inside the measurement window
            self._spilled += [array.copy() for array in self._drain()]
        self._order.append((buffer, buffer.add(tensor)))

    def collect(self) -> list[NDArray[Any]]:
        """Every stored output in order, on the host; the store is empty afterwards."""
        arrays, self._spilled = self._spilled + self._drain(), []
        return arrays

    def _drain(self) -> list[NDArray[Any]]:
        hosts = {id(buffer): buffer.fetch() for buffer in self._buffers.values() if buffer.used}
        torch.cuda.synchronize()
        # A whole window is returned without a copy; fewer steps are copied, so that the buffer can be reused.
        rows = {k: host.numpy() if len(host) == KEEP else host.numpy().copy() for k, host in hosts.items()}
        arrays = [rows[id(buffer)][row] for buffer, row in self._order]
        self._order = []
        return arrays


class _Buffer:
    def __init__(self, like: Tensor) -> None:
        half = like.dtype in (torch.bfloat16, torch.float16)
        dtype = torch.float32 if half else like.dtype
        self._device = torch.empty((KEEP, *like.shape), dtype=dtype, device=like.device)
        self._host: Tensor | None = self._pinned()
        self.used = 0

    def _pinned(self) -> Tensor:
        return torch.empty(self._device.shape, dtype=self._device.dtype, pin_memory=True)

    def add(self, tensor: Tensor) -> int:
        self._device[self.used].copy_(tensor.detach())
        self.used += 1
        return self.used - 1

    def fetch(self) -> Tensor:
        whole = self._host if self._host is not None else self._pinned()
        host = whole[: self.used]
        host.copy_(self._device[: self.used], non_blocking=True)
        self._host = None if self.used == KEEP else whole
        self.used = 0
        return host
