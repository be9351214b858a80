"""Sums of gradients by the copy engines of the GPUs of one machine, in PyTorch's symmetric memory.

NCCL's kernels take multiprocessors from the computation beside them. Here copy engines move the bytes: each
vector is cut into a part for each rank; a rank receives its part from the others, adds the parts up, and
copies the sum to all. As in a ring, a rank sends 2(n - 1)/n of a vector's bytes. Kernels remain for
additions, for signals, and to put small gradients together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _symmetric_memory as symmetric

ALONE = 1 << 20  # bytes: a larger gradient is read where it lies, smaller ones are first copied together
CHUNK = 32 << 20  # bytes of a part that are copied, added up and copied back as one
_ALIGNMENT = 128  # elements


class Vector:
    """A vector that all ranks add up: where its parts and the sum lie in the memory of each rank.

    ``memory`` is a handle of symmetric memory, of which the vector has twice its ``padded`` length from
    ``offset`` on, and ``signals`` signals from ``signal`` on. ``used`` is its length.
    """

    def __init__(self, memory: Any, dtype: torch.dtype, offset: int, used: int, signal: int = 0) -> None:
        self._memory, self._used, self._signal = memory, used, signal
        self._rank, ranks = memory.rank, memory.world_size
        length = padded(used, ranks)
        self._part = length // ranks
        self.others = [(self._rank + step) % ranks for step in range(1, ranks)]
        self._received = [memory.get_buffer(one, (ranks, self._part), dtype, offset) for one in range(ranks)]
        self._sums = [memory.get_buffer(one, (length,), dtype, offset + length) for one in range(ranks)]
        self.sum = self._sums[self._rank][:used]
        self._chunk = CHUNK // self.sum.element_size()
        self.signals = -(-self._part // self._chunk)

    def _chunks(self, rank: int) -> list[tuple[int, int]]:
        """Where the chunks of the part of ``rank`` begin and end; some may be empty."""
        first = rank * self._part
        bounds = [min(self._chunk * at, self._part) + first for at in range(self.signals + 1)]
        bounds = [min(bound, self._used) for bound in bounds]
        return list(pairwise(bounds))

    def send(self, own: Tensor) -> None:
        """Copy to every other rank its part of ``own``, a vector, and signal each chunk."""
        parts = {peer: self._chunks(peer) for peer in self.others}
        for at in range(self.signals):
            for peer, chunks in parts.items():
                begin, end = chunks[at]
                first = peer * self._part
                self._received[peer][self._rank, begin - first : end - first].copy_(own[begin:end])
                self._memory.put_signal(peer, self._signal + at)

    def add(self, own: Tensor) -> None:
        """Add up this rank's part of all ranks, chunk by chunk, and copy the sums to the others."""
        first, received = self._rank * self._part, self._received[self._rank]
        for at, (begin, end) in enumerate(self._chunks(self._rank)):
            total = self._sums[self._rank][begin:end]
            addend = own[begin:end]
            for peer in self.others:
                self._memory.wait_signal(peer, self._signal + at)
                addend = torch.add(addend, received[peer, begin - first : end - first], out=total)
            for peer in self.others:
                self._sums[peer][begin:end].copy_(total)


class Group:
    """Parameters whose gradients are exchanged as one vector."""

    def __init__(self, parameters: Sequence[nn.Parameter], vector: Vector) -> None:
        self._parameters, self.vector = list(parameters), vector
        sizes = [parameter.numel() for parameter in parameters]
        self._sums = vector.sum.split(sizes)
        self._together = torch.empty_like(vector.sum).split(sizes) if len(sizes) > 1 else ()
        self._ready = 0

    def complete(self) -> bool:
        """Count one more gradient; whether it was the last one of a ``backward()``."""
        self._ready = (self._ready + 1) % len(self._parameters)
        return self._ready == 0

    @torch.no_grad()
    def take(self) -> Tensor:
        """The gradients of this rank as one vector; ``grad`` becomes the sum, in equal strides."""
        flat = []
        for parameter, total in zip(self._parameters, self._sums, strict=True):
            gradient = parameter.grad
            if gradient is None:
                raise RuntimeError("expected a gradient after its hook was called, found none")
            if not torch.ops.aten.is_non_overlapping_and_dense(gradient):
                gradient = gradient.contiguous()
            flat.append(gradient.as_strided((gradient.numel(),), (1,)))
            parameter.grad = total.as_strided(gradient.shape, gradient.stride(), total.storage_offset())
        if not self._together:
            return flat[0]
        torch._foreach_copy_(self._together, flat)
        return self._together[0].as_strided((sum(map(len, flat)),), (1,))


class CopySums:
    """Sums of vectors of ``sizes`` elements over the ranks, of the type and on the device of ``like``.

    ``begin`` starts a sum behind the work of the current stream, on two streams of this class, which join it
    in ``finish``. The sums are in ``vectors``, until the next ones overwrite them.
    """

    def __init__(self, sizes: Sequence[int], like: Tensor) -> None:
        ranks, item = dist.get_world_size(), like.element_size()
        # Each chunk has a signal; a vector has one chunk at least, and the end of a step has the last signal.
        most = 1 + sum(1 + size * item // CHUNK for size in sizes)
        pad = max(symmetric.get_signal_pad_size(), most * ranks * torch.uint32.itemsize)
        symmetric.set_signal_pad_size(pad)
        length = 2 * sum(padded(size, ranks) for size in sizes)
        self._tensor = symmetric.empty(length, dtype=like.dtype, device=like.device)
        # Outside PyTorch's caching allocator, which therefore does not count it.
        self.held_bytes = self._tensor.nbytes
        self._memory: Any = symmetric.rendezvous(self._tensor, dist.group.WORLD)
        self.vectors: list[Vector] = []
        offset = self._last_signal = 0
        for size in sizes:
            self.vectors.append(Vector(self._memory, like.dtype, offset, size, self._last_signal))
            offset += 2 * padded(size, ranks)
            self._last_signal += self.vectors[-1].signals
        self._streams = [torch.cuda.Stream(like.device) if like.is_cuda else None for _ in range(2)]
        self._own: list[Tensor] = []

    @torch.no_grad()
    def begin(self, vector: Vector, own: Tensor) -> None:
        """Add up ``own`` of all ranks in ``vector``."""
        self._own.append(own)  # until finish(): else a later operation could use its memory again
        for stream, work in zip(self._streams, (vector.send, vector.add), strict=True):
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                work(own)

    @torch.no_grad()
    def finish(self) -> None:
        """Let the current stream wait until all sums that this rank has begun are complete in its memory."""
        others = self.vectors[0].others
        with torch.cuda.stream(self._streams[1]):  # behind all copies of sums to the others
            for peer in others:
                self._memory.put_signal(peer, self._last_signal)
        for stream in self._streams:
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
        for peer in others:
            self._memory.wait_signal(peer, self._last_signal)
        self._own.clear()

    def add_up(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of all ranks' ``tensors``, contiguous and of the sizes of the vectors, in their shapes."""
        for vector, tensor in zip(self.vectors, tensors, strict=True):
            self.begin(vector, tensor.view(-1))
        self.finish()
        return [vector.sum.view_as(one) for vector, one in zip(self.vectors, tensors, strict=True)]


class CopyEngines:
    """Adds up the gradients of ``parameters`` over the ranks of one machine, during ``backward()``.

    The first ``backward()`` shows in which order gradients are complete; the process group adds those up.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self.sums: CopySums | None = None
        self._order: list[int] = []
        self._handles = [
            parameter.register_post_accumulate_grad_hook(lambda _, at=at: self._order.append(at))
            for at, parameter in enumerate(self._parameters)
        ]

    def finish(self) -> None:
        """Let the current stream wait until the gradients are the sums. ``backward()`` must have returned."""
        if self.sums is None:
            self._plan()
        else:
            self.sums.finish()

    @torch.no_grad()
    def _plan(self) -> None:
        """Group the parameters by the order of rank 0, and add up these first gradients."""
        for handle in self._handles:
            handle.remove()
        if sorted(self._order) != list(range(len(self._parameters))):
            wanted, found = len(self._parameters), len(set(self._order))
            raise RuntimeError(f"expected a gradient of each of {wanted} weights, found {found}")
        order = torch.tensor(self._order, device=self._parameters[0].device)
        dist.broadcast(order, 0)
        parameters = [self._parameters[at] for at in order.tolist()]
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
        groups = grouped(parameters)
        sizes = [sum(one.numel() for one in group) for group in groups]
        self.sums = CopySums(sizes, parameters[0])
        for members, vector in zip(groups, self.sums.vectors, strict=True):
            group = Group(members, vector)
            for parameter in members:
                parameter.register_post_accumulate_grad_hook(self._hook(self.sums, group))

    @staticmethod
    def _hook(sums: CopySums, group: Group) -> Callable[[Tensor], None]:
        def completed(_: Tensor) -> None:
            if group.complete():
                sums.begin(group.vector, group.take())

        return completed


def grouped(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """A group for each parameter of at least :data:`ALONE` bytes; others in groups of at most as many."""
    groups: list[list[nn.Parameter]] = []
    small: list[nn.Parameter] = []
    for parameter in parameters:
        if parameter.nbytes >= ALONE:
            groups.append([parameter])
            continue
        if sum(one.nbytes for one in small) + parameter.nbytes > ALONE:
            groups.append(small)
            small = []
        small.append(parameter)
    return [*groups, small] if small else groups


def padded(length: int, ranks: int) -> int:
    """``length`` rounded up to a part for each of ``ranks``, aligned."""
    unit = ranks * _ALIGNMENT
    return -(-length // unit) * unit
