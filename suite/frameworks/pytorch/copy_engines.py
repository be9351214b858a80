"""Sums of gradients by the copy engines of the GPUs of one machine, in PyTorch's symmetric memory.

NCCL's kernels take multiprocessors from the computation beside them. Here copy engines move the bytes: each
vector is cut into a part for each rank; a rank receives its part from the others, adds the parts up, and
copies the sum to all. As in a ring, a rank sends 2(n - 1)/n of a vector's bytes. Kernels remain for
additions, for signals, and to put small gradients together.

Where the update of a weight depends on its own gradient alone, a rank updates its part of the weights by the
sum, and copies the weights instead: 1/n of the reads and writes of an update on each GPU (the sharded update
of Xu et al., 2020, arXiv:2004.13336). The states of the optimiser for other parts stay as they were. Where it
depends on the norm of all gradients, each rank keeps the sum of its part until ``backward()`` has ended, the
ranks add up the squares, and then update and copy the weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _symmetric_memory as symmetric

from suite.frameworks.pytorch.optimisers import Adam, Momentum, clipping_scale, norms, with_layout_of

ALONE = 8 << 20  # bytes: a larger gradient is read where it lies, smaller ones are first copied together
CHUNK = 32 << 20  # bytes of a part that are copied, added up and copied back as one
_ALIGNMENT = 128  # elements

# Updates the weights from one element of the vector to another by the gradient of these.
Update = Callable[[int, int, Tensor], None]


class Vector:
    """A vector that all ranks add up: where its parts and the result lie in the memory of each rank.

    ``memory`` is a handle of symmetric memory, of which the vector has twice its ``padded`` length from
    ``offset`` on, and ``signals`` signals from ``signal`` on. ``used`` is its length. ``result`` is the sum
    in this rank's memory, or what all ranks hold instead.
    """

    def __init__(self, memory: Any, dtype: torch.dtype, offset: int, used: int, signal: int = 0) -> None:
        self._memory, self._used, self._signal = memory, used, signal
        self._rank, ranks = memory.rank, memory.world_size
        length = padded(used, ranks)
        self._part = length // ranks
        self.others = [(self._rank + step) % ranks for step in range(1, ranks)]
        self._received = [memory.get_buffer(one, (ranks, self._part), dtype, offset) for one in range(ranks)]
        self._results = [memory.get_buffer(one, (length,), dtype, offset + length) for one in range(ranks)]
        self.result = self._results[self._rank][:used]
        self._chunk = CHUNK // self.result.element_size()
        self.signals = -(-self._part // self._chunk)
        self._own_chunks = self._chunks(self._rank)

    def _chunks(self, rank: int) -> list[tuple[int, int]]:
        """Where the chunks of the part of ``rank`` begin and end; some may be empty."""
        first = rank * self._part
        bounds = [min(self._chunk * at, self._part) + first for at in range(self.signals + 1)]
        bounds = [min(bound, self._used) for bound in bounds]
        return list(pairwise(bounds))

    def send(self, peer: int, own: Tensor) -> None:
        """Copy to ``peer`` its part of ``own``, a vector, and signal each chunk."""
        first, received = peer * self._part, self._received[peer][self._rank]
        for at, (begin, end) in enumerate(self._chunks(peer)):
            received[begin - first : end - first].copy_(own[begin:end])
            self._memory.put_signal(peer, self._signal + at)

    def add(self, at: int, own: Tensor, *, keep: bool) -> None:
        """Add up chunk ``at`` of this rank's part: the sum is the result, or is kept (:meth:`kept`)."""
        for peer in self.others:
            self._memory.wait_signal(peer, self._signal + at)
        begin, end = self._own_chunks[at]
        if begin == end:
            return
        first = self._rank * self._part
        parts = self._received[self._rank][:, begin - first : end - first]
        add_up(own[begin:end], parts, self._rank, self.kept(begin, end) if keep else self.result[begin:end])

    def kept(self, begin: int, end: int) -> Tensor:
        """Sums of this rank's part, in its own row of what is received: no rank sends to itself."""
        first = self._rank * self._part
        return self._received[self._rank][self._rank][begin - first : end - first]

    def own(self, at: int | None = None) -> tuple[int, int]:
        """Where chunk ``at`` of this rank's part, or the whole part, begins and ends."""
        return (self._own_chunks[0][0], self._own_chunks[-1][1]) if at is None else self._own_chunks[at]

    def give(self, peer: int, begin: int, end: int) -> None:
        """Copy the result from ``begin`` to ``end``, of this rank's part, to ``peer``."""
        self._results[peer][begin:end].copy_(self.result[begin:end])


def add_up(own: Tensor, parts: Tensor, rank: int, total: Tensor) -> None:
    """Write to ``total`` the sum of ``own`` and all rows of ``parts`` but that of ``rank``."""
    ranks, length = parts.shape
    if own.is_cuda:
        from suite.frameworks.pytorch import kernels  # imports Triton, which only CUDA builds have

        programs = -(-length // kernels.BLOCK)
        kernels.add_up[(programs,)](own, parts, parts.stride(0), rank, total, length, ranks, kernels.BLOCK)
        return
    for step in range(1, ranks):
        own = torch.add(own, parts[(rank + step) % ranks], out=total)


class Group:
    """Parameters that are exchanged as one vector, in which each begins at an aligned element."""

    def __init__(self, parameters: Sequence[nn.Parameter], vector: Vector) -> None:
        self._parameters, self.vector = list(parameters), vector
        self._ready = 0
        self._sums = self._pieces(vector.result)
        self._together = torch.zeros_like(vector.result) if len(parameters) > 1 else None
        self._copies = self._pieces(self._together) if self._together is not None else []

    @staticmethod
    def length(parameters: Sequence[nn.Parameter]) -> int:
        """The elements of the vector of ``parameters``."""
        if len(parameters) == 1:
            return parameters[0].numel()
        return sum(padded(parameter.numel(), 1) for parameter in parameters)

    def _pieces(self, vector: Tensor) -> list[Tensor]:
        """The elements of each parameter in ``vector``."""
        starts = accumulate((padded(parameter.numel(), 1) for parameter in self._parameters), initial=0)
        return [
            vector[start : start + one.numel()] for start, one in zip(starts, self._parameters, strict=False)
        ]

    def move(self, tensors: Sequence[Tensor], vector: Tensor) -> None:
        """Let ``tensors``, of the parameters' shapes, lie in ``vector``, with their values and strides."""
        for tensor, piece in zip(tensors, self._pieces(vector), strict=True):
            moved = piece.as_strided(tensor.shape, tensor.stride())
            tensor.data = moved.copy_(tensor)

    def complete(self) -> bool:
        """Count one more gradient; whether it was the last one of a ``backward()``."""
        self._ready = (self._ready + 1) % len(self._parameters)
        return self._ready == 0

    @torch.no_grad()
    def take(self, in_layout: bool) -> Tensor:
        """The gradients of this rank as one vector: in the layout of the parameters, or in their own.

        In their own, ``grad`` becomes the sum, in equal strides.
        """
        flat = []
        for parameter, total in zip(self._parameters, self._sums, strict=True):
            gradient = parameter.grad
            if gradient is None:
                raise RuntimeError("expected a gradient after its hook was called, found none")
            if in_layout:
                gradient = with_layout_of(gradient, parameter)
            elif not torch.ops.aten.is_non_overlapping_and_dense(gradient):
                gradient = gradient.contiguous()
            flat.append(gradient.as_strided((gradient.numel(),), (1,)))
            if not in_layout:
                parameter.grad = total.as_strided(gradient.shape, gradient.stride())
        if self._together is None:
            return flat[0]
        torch._foreach_copy_(self._copies, flat)
        return self._together


class CopySums:
    """Sums of vectors of ``sizes`` elements over the ranks, of the type and on the device of ``like``.

    ``begin`` starts a sum behind the work of the current stream, on streams of this class, which join it in
    ``finish``: one to each other rank for parts, one for additions, one to each other rank for results. The
    sums are in ``vectors``, until the next ones overwrite them.
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
        self._others = self.vectors[0].others
        self._sending = {peer: _stream(like.device) for peer in self._others}
        self._giving = {peer: _stream(like.device) for peer in self._others}
        self._adding = _stream(like.device)
        self._own: list[Tensor] = []

    @torch.no_grad()
    def begin(
        self, vector: Vector, own: Tensor, update: Update | None = None, *, later: bool = False
    ) -> None:
        """Add up ``own`` of all ranks in ``vector``, or update what ``vector`` holds by the sum.

        With ``later`` :meth:`update` follows, after :meth:`join`.
        """
        self._own.append(own)  # until finish(): else a later operation could use its memory again
        for peer in self._others:
            with _behind(None, self._sending[peer]):
                vector.send(peer, own)
        with _behind(None, self._adding):
            for at in range(vector.signals):
                vector.add(at, own, keep=update is not None)
                if later:
                    continue
                begin, end = vector.own(at)
                if update is not None and begin < end:
                    update(begin, end, vector.kept(begin, end))
                self._give(vector, begin, end, self._adding)

    def join(self) -> None:
        """Let the current stream wait until all sums of this rank's parts are complete."""
        if self._adding is not None:
            torch.cuda.current_stream().wait_stream(self._adding)

    @torch.no_grad()
    def update(self, vector: Vector, update: Update) -> None:
        """Update this rank's part of what ``vector`` holds by the kept sum, on the current stream."""
        begin, end = vector.own()
        if begin < end:
            update(begin, end, vector.kept(begin, end))
        self._give(vector, begin, end, None)

    def _give(self, vector: Vector, begin: int, end: int, behind: torch.cuda.Stream | None) -> None:
        for peer in self._others:
            with _behind(behind, self._giving[peer]):
                vector.give(peer, begin, end)

    @torch.no_grad()
    def finish(self) -> None:
        """Let the current stream wait until all that was begun is complete in this rank's memory."""
        for peer, stream in self._giving.items():
            with torch.cuda.stream(stream):  # behind all copies of results to this one
                self._memory.put_signal(peer, self._last_signal)
        for stream in (*self._sending.values(), self._adding, *self._giving.values()):
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
        for peer in self._others:
            self._memory.wait_signal(peer, self._last_signal)
        self._own.clear()

    def add_up(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of all ranks' ``tensors``, contiguous and of the sizes of the vectors, in their shapes."""
        for vector, tensor in zip(self.vectors, tensors, strict=True):
            self.begin(vector, tensor.view(-1))
        self.finish()
        return [vector.result.view_as(one) for vector, one in zip(self.vectors, tensors, strict=True)]


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream of a GPU; none on a CPU, where work is complete when it returns."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def _behind(
    earlier: torch.cuda.Stream | None, stream: torch.cuda.Stream | None
) -> contextlib.AbstractContextManager[Any]:
    """Work on ``stream`` behind that of ``earlier``, or of the current stream."""
    if stream is not None:
        stream.wait_stream(earlier or torch.cuda.current_stream())
    return torch.cuda.stream(stream)


class CopyEngines:
    """Adds up the gradients of ``parameters`` over the ranks of one machine, during ``backward()``.

    The first ``backward()`` shows in which order gradients are complete; the process group adds those up.
    With an ``optimiser`` :meth:`backward_and_update` updates the weights, and the process group adds up the
    gradients of another ``backward()``.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self.optimiser: Momentum | Adam | None = None
        self.limit: float | None = None  # of the norm of all gradients; infinite: only the norm is needed
        self.sums: CopySums | None = None
        self._updates: list[tuple[Vector, Update]] = []
        self._scale: Tensor | None = None  # of the gradients, which clips them
        self._updating = False
        self._order: list[int] = []
        self._handles = [
            parameter.register_post_accumulate_grad_hook(lambda _, at=at: self._order.append(at))
            for at, parameter in enumerate(self._parameters)
        ]

    @property
    def updates(self) -> bool:
        """Whether :meth:`backward_and_update` may be called."""
        return self.sums is not None and self.optimiser is not None

    def backward_and_update(self, loss: Tensor) -> Tensor | None:
        """``loss.backward()`` and an update; no gradients are left. With a limit, the norm of all."""
        assert self.sums is not None
        self._updating = True
        loss.backward()
        self._updating = False
        norm = None if self.limit is None else self._update_clipped(self.sums, self.limit)
        self.sums.finish()
        for parameter in self._parameters:
            parameter.grad = None
        return norm

    @torch.no_grad()
    def _update_clipped(self, sums: CopySums, limit: float) -> Tensor:
        """Clip the kept sums by their norm over all ranks, and update; the norm before clipping."""
        sums.join()
        own = [vector.kept(*vector.own()) for vector, _ in self._updates]
        squares = torch.linalg.vector_norm(torch.stack(norms(own))).square()
        dist.all_reduce(squares)
        norm = squares.sqrt()
        self._scale = clipping_scale(norm, limit) if limit < float("inf") else None
        for vector, update in self._updates:
            sums.update(vector, update)
        return norm

    def finish(self) -> None:
        """Let the current stream wait until the gradients are the sums. ``backward()`` must have returned."""
        if self.sums is None:
            self._plan()
        elif self.optimiser is None:
            self.sums.finish()
        else:
            self._all_reduce()

    def _all_reduce(self) -> None:
        for parameter in self._parameters:
            dist.all_reduce(parameter.grad)

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
        self._all_reduce()
        decays = self.optimiser.decays if self.optimiser is not None else lambda _: False
        groups = grouped([(at, self._parameters[at], decays(at)) for at in order.tolist()])
        members = [[self._parameters[at] for at in group] for group in groups]
        self.sums = CopySums([Group.length(one) for one in members], self._parameters[0])
        for indices, parameters, vector in zip(groups, members, self.sums.vectors, strict=True):
            group = Group(parameters, vector)
            update = None if self.optimiser is None else self._update_of(self.optimiser, indices, group)
            if update is not None:
                self._updates.append((vector, update))
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(self._hook(self.sums, group, update))

    def _update_of(self, optimiser: Momentum | Adam, indices: Sequence[int], group: Group) -> Update:
        """Let weights and states of ``group`` lie as its vector does; how a piece of them is updated."""
        weights = group.vector.result
        group.move([self._parameters[at] for at in indices], weights)
        states = []
        for kind in zip(*(optimiser.states(at) for at in indices), strict=True):
            states.append(torch.zeros_like(weights))
            group.move(kind, states[-1])

        def update(begin: int, end: int, gradient: Tensor) -> None:
            if self._scale is not None:
                gradient.mul_(self._scale)
            pieces = [state[begin:end] for state in states]
            optimiser.apply(indices[0], weights[begin:end], gradient, pieces)

        return update

    def _hook(self, sums: CopySums, group: Group, update: Update | None) -> Callable[[Tensor], None]:
        def completed(_: Tensor) -> None:
            if group.complete() and self._updating == (update is not None):
                vector = group.take(in_layout=self._updating)
                sums.begin(group.vector, vector, update, later=self.limit is not None)

        return completed


def grouped(parameters: Sequence[tuple[int, nn.Parameter, bool]]) -> list[list[int]]:
    """Indices, of which each comes with its parameter and whether it decays, in groups.

    A group for each parameter of at least :data:`ALONE` bytes; others in groups of at most as many, in which
    all decay or none does. Groups are in the order in which they are complete.
    """
    groups: list[list[int]] = []
    small: dict[bool, list[int]] = {True: [], False: []}
    held = {True: 0, False: 0}
    for at, parameter, decays in parameters:
        if parameter.nbytes >= ALONE:
            groups.append([at])
            continue
        if held[decays] + parameter.nbytes > ALONE:
            groups.append(small[decays])
            small[decays], held[decays] = [], 0
        small[decays].append(at)
        held[decays] += parameter.nbytes
    return [*groups, *(group for group in small.values() if group)]


def padded(length: int, ranks: int) -> int:
    """``length`` rounded up to a part for each of ``ranks``, aligned."""
    unit = ranks * _ALIGNMENT
    return -(-length // unit) * unit
