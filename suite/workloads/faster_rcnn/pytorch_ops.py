"""The operations of ``ops.py`` in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Ops:
    """See :class:`suite.workloads.faster_rcnn.ops.Ops`."""

    floor = staticmethod(torch.floor)
    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)
    absolute = staticmethod(torch.abs)
    minimum = staticmethod(torch.minimum)
    maximum = staticmethod(torch.maximum)
    sum = staticmethod(torch.sum)
    max = staticmethod(torch.amax)
    expand_dims = staticmethod(torch.unsqueeze)
    reshape = staticmethod(torch.reshape)

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device

    def mask(self, condition: Tensor) -> Tensor:  # noqa: D102 - documented by the protocol
        return condition.to(self._dtype)

    def to_float(self, index: Tensor) -> Tensor:  # noqa: D102
        return index.to(self._dtype)

    def to_index(self, number: Tensor) -> Tensor:  # noqa: D102
        return number.to(torch.int64)

    def arange(self, count: int) -> Tensor:  # noqa: D102
        return torch.arange(count, dtype=self._dtype, device=self._device)

    def at_least(self, x: Tensor, limit: float) -> Tensor:  # noqa: D102
        return x.clamp(min=limit)

    def at_most(self, x: Tensor, limit: float) -> Tensor:  # noqa: D102
        return x.clamp(max=limit)

    def argmax(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.max(dim=-1).indices  # the first of equal values, by its documentation

    def top_indices(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        # topk does not define ties: a key of score and position has none.
        size = score.shape[1]
        key = score.to(torch.int64) * size - torch.arange(size, device=self._device)
        return key.topk(count, dim=1, sorted=False).indices.sort(dim=1).values

    def kth_largest(self, score: Tensor, count: int) -> Tensor:  # noqa: D102
        return score.topk(count, dim=1).values[:, -1:]

    def gather(self, values: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        if values.ndim == 2:
            return values.gather(1, index)
        return values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[-1]))

    def take_rows(self, table: Tensor, index: Tensor) -> Tensor:  # noqa: D102
        return table[index]

    def matvec(self, matrices: Tensor, vectors: Tensor) -> Tensor:  # noqa: D102
        return torch.matmul(matrices, vectors.unsqueeze(-1)).squeeze(-1)

    def coordinates(self, boxes: Tensor) -> Sequence[Tensor]:  # noqa: D102
        return boxes.unbind(-1)

    def stack(self, parts: Sequence[Tensor]) -> Tensor:  # noqa: D102
        return torch.stack(list(parts), dim=-1)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:  # noqa: D102
        return torch.cat(list(parts), dim=axis)

    def slice_axis(self, x: Tensor, axis: int, start: int, end: int) -> Tensor:  # noqa: D102
        return x.narrow(axis, start, end - start)

    def softmax(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.softmax(x, dim=-1)

    def log_softmax(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.log_softmax(x, dim=-1)
