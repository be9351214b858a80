"""PyTorch's symmetric memory for ranks on CPUs: files that all processes map, and signals that they poll.

It stands for the memory of the GPUs of one machine in tests of the collective ``copy_engine``.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric

from suite.contract import Job
from suite.frameworks.pytorch import copy_engines, exchange

_LIMIT_S = 60


class SharedMemory:
    """What a handle of symmetric memory does, with the memory of each rank in a file of ``folder``."""

    def __init__(self, folder: Path, name: str, like: Tensor, signals: int) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self._memories = [
            torch.from_file(f"{folder}/{name}-{rank}", shared=True, size=like.numel(), dtype=like.dtype)
            for rank in range(self.world_size)
        ]
        # One element for each receiver, signal and sender; 1 from put_signal to wait_signal.
        shape = self.world_size, signals, self.world_size
        size = self.world_size * signals * self.world_size
        file = f"{folder}/{name}-signals"
        self._pads = torch.from_file(file, shared=True, size=size, dtype=torch.int32).view(shape)
        dist.barrier()

    def get_buffer(self, rank: int, sizes: tuple[int, ...], dtype: torch.dtype, offset: int) -> Tensor:
        """A tensor in the memory of ``rank``, from element ``offset`` on."""
        assert dtype == self._memories[rank].dtype
        length = torch.Size(sizes).numel()
        return self._memories[rank][offset : offset + length].view(sizes)

    def put_signal(self, peer: int, channel: int) -> None:
        """Signal ``peer``, once it has taken the last signal of ``channel``."""
        self._change(self._pads[peer, channel], self.rank, 0, 1)

    def wait_signal(self, peer: int, channel: int) -> None:
        """Wait for the signal of ``peer``, and take it."""
        self._change(self._pads[self.rank, channel], peer, 1, 0)

    def _change(self, pad: Tensor, at: int, before: int, after: int) -> None:
        end = time.monotonic() + _LIMIT_S
        while pad[at] != before:
            if time.monotonic() > end:
                raise RuntimeError(f"rank {self.rank}: expected a signal of {before}, found {int(pad[at])}")
            time.sleep(1e-5)
        pad[at] = after


@contextlib.contextmanager
def copy_engine(job: Job) -> Iterator[Job]:
    """The ranks add up gradients as with the collective ``copy_engine``, over files of the scratch folder."""
    names, signals = itertools.count(), [0]
    start = exchange.Exchange.__init__
    meet = dist.init_process_group

    def rendezvous(tensor: Tensor, group: Any) -> SharedMemory:
        del group
        pads = signals[0] // (4 * job.world_size)
        return SharedMemory(Path(job.scratch_dir), f"memory-{next(names)}", tensor, pads)

    def begun(self: Any, job: Job, device: torch.device) -> None:
        start(self, replace(job, collective=exchange.COPY_ENGINE), device)

    with contextlib.ExitStack() as stack:
        for target, name, replacement in (
            (symmetric, "empty", torch.empty),
            (symmetric, "rendezvous", rendezvous),
            (symmetric, "get_signal_pad_size", lambda: 0),
            (symmetric, "set_signal_pad_size", lambda size: signals.__setitem__(0, size)),
            (copy_engines, "ALONE", 256),  # the small cases have vectors of one and of several gradients,
            (copy_engines, "CHUNK", 1024),  # and of several chunks
            (exchange, "_require_access", lambda *_: None),
            (dist, "init_process_group", lambda _, **named: meet("gloo", **named)),
            (exchange.Exchange, "__init__", begun),
        ):
            stack.enter_context(mock.patch.object(target, name, replacement))
        yield job
        if next(names) == 0:
            raise RuntimeError("expected sums in shared memory, found none")
