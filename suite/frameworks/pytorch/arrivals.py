"""Arrivals of a rank at the exchange in PyTorch: a hook behind the last gradient, and the clock of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from suite.frameworks.arrivals import RING, OtherClock


class LastGradient:
    """Calls ``record`` whenever ``backward()`` has computed the last gradient of ``parameters``.

    The first ``backward()`` shows which one is the last; DistributedDataParallel orders its buckets likewise.
    Its own hook on that gradient runs after this one, then ``backward()`` waits for the other ranks.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], record: Callable[[], None]) -> None:
        self._record, self._computed = record, 0
        self._handles = [one.register_post_accumulate_grad_hook(self._count) for one in parameters]

    def _count(self, parameter: Tensor) -> None:
        self._computed += 1
        if self._computed == len(self._handles):
            for handle in self._handles:
                handle.remove()
            # One hook: those of a hundred parameters would take longer than the exchange of a small model.
            parameter.register_post_accumulate_grad_hook(lambda _: self._record())
            self._record()


class DeviceArrivals:
    """Arrivals by a GPU's clock: a kernel of one thread writes it into a ring on the device.

    A captured graph contains the kernel, so that replays record arrivals without the host, and nothing waits.
    The kernel is Triton's, which ``torch.compile`` needs too.
    """

    def __init__(self, device: torch.device) -> None:
        from suite.frameworks.pytorch import kernels  # imports Triton, which only CUDA builds have

        self._kernel = kernels.record
        self._times = torch.zeros(RING, dtype=torch.int64, device=device)
        self._count = torch.zeros(1, dtype=torch.int64, device=device)
        self._now = torch.zeros(1, dtype=torch.int64, device=device)
        self._ignored = torch.zeros(1, dtype=torch.int64, device=device)
        self._clock = OtherClock(self._read_now)
        ticks = torch.zeros(kernels.TICKS, dtype=torch.int64, device=device)
        kernels.observe[(1,)](ticks, kernels.TICKS, num_warps=1)
        # The smallest difference between readings that differ.
        self._resolution_ns = int(torch.diff(ticks).min())

    def prepare(self) -> None:
        """Forget earlier arrivals, and compare the clocks; no step is running."""
        self._count.zero_()
        self._clock.start()

    def record(self) -> None:
        """Enqueue the recording of an arrival behind the work of the current stream."""
        self._kernel[(1,)](self._times, self._count, RING, num_warps=1)

    def read(self, count: int) -> list[int] | None:
        """See :class:`suite.contract.Arrivals`."""
        if int(self._count) != count:
            return None
        times: list[int] = self._times[:count].tolist()
        return self._clock.translate(times)

    def clock(self) -> dict[str, Any]:
        """See :class:`suite.contract.Arrivals`."""
        bound = self._clock.bound_ns + self._resolution_ns
        return {"name": "globaltimer", "resolution_ns": self._resolution_ns, "bound_ns": bound}

    def _read_now(self) -> int:
        self._kernel[(1,)](self._now, self._ignored, 1, num_warps=1)
        return int(self._now)  # waits for the kernel
