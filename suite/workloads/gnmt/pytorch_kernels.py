"""Attention scores and loss of GNMT: plain PyTorch, and fast kernels that recompute to save memory.

The fast kernels do the same arithmetic without storing large tensors: attention, in Triton
(``pytorch_attention``), never stores [B, T, S, H], the loss stores the logits once and computes their
gradient in one pass. The loss is a custom autograd function whose bodies ``torch.compile`` fuses. They never
synchronise with the device, so a step can be captured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def plain_score(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Scores [B, T, S] = sum over H of tanh(query + key) * vector, for [T, B, H], [S, B, H] and [H]."""
    joined = torch.tanh(queries.transpose(0, 1)[:, :, None] + keys.transpose(0, 1)[:, None])
    return joined.to(vector.dtype) @ vector


def plain_loss(logits: Tensor, targets: Tensor, counted: Tensor, smoothing: float) -> Tensor:
    """Sum over counted rows of (1 - smoothing) nll + smoothing * mean of -log p; [N, V], [N], [N] -> scalar.

    Source: ``seq2seq/train/smoothing.py`` of the MLPerf reference.
    """
    log_p = torch.log_softmax(logits.to(counted.dtype), dim=1)
    nll = -log_p.gather(1, targets[:, None])[:, 0]
    return (((1.0 - smoothing) * nll - smoothing * log_p.mean(dim=1)) * counted).sum()


def fast_score(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """As :func:`plain_score`, in Triton's kernels."""
    from suite.workloads.gnmt import pytorch_attention

    return pytorch_attention.score(queries, keys, vector)


def fast_loss(logits: Tensor, targets: Tensor, counted: Tensor, smoothing: float) -> Tensor:
    """As :func:`plain_loss`; keeps the logits and one number per row for the backward pass."""
    result: Tensor = _Loss.apply(logits, targets, counted, smoothing)  # type: ignore[no-untyped-call]
    return result


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False, fullgraph=True)


def _any_length(tensor: Tensor) -> Tensor:
    """``tensor``, for a function compiled for any number of rows: the five buckets share its code."""
    torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return tensor


def _loss_forward(
    logits: Tensor, targets: Tensor, counted: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    wide = logits.to(counted.dtype)
    normaliser = torch.logsumexp(wide, dim=1)
    chosen = wide.gather(1, targets[:, None])[:, 0]
    rows = normaliser - (1.0 - smoothing) * chosen - smoothing * wide.mean(dim=1)
    return (rows * counted).sum(), normaliser


def _loss_backward(
    logits: Tensor, targets: Tensor, counted: Tensor, normaliser: Tensor, smoothing: float, gradient: Tensor
) -> Tensor:
    vocabulary = logits.shape[1]
    words = torch.arange(vocabulary, device=logits.device)
    chosen = (words == targets[:, None]).to(counted.dtype)
    wanted = (1.0 - smoothing) * chosen + smoothing / vocabulary
    slope = torch.exp(logits.to(counted.dtype) - normaliser[:, None]) - wanted
    return (slope * (counted * gradient)[:, None]).to(logits.dtype)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, counted: Tensor, smoothing: float) -> Tensor:
        logits, targets, counted = _any_length(logits), _any_length(targets), _any_length(counted)
        loss, normaliser = _compiled(_loss_forward)(logits, targets, counted, smoothing)
        ctx.save_for_backward(logits, targets, counted, normaliser)
        ctx.smoothing = smoothing
        result: Tensor = loss
        return result

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, gradient: Tensor) -> Any:
        logits, targets, counted, normaliser = map(_any_length, ctx.saved_tensors)
        slope = _compiled(_loss_backward)(logits, targets, counted, normaliser, ctx.smoothing, gradient)
        return slope, None, None, None
