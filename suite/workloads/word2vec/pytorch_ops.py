"""Skip-gram with negative sampling by plain PyTorch: errors, gradients, and the nearest words on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from suite.workloads.word2vec import spec

GROUP = 64  # columns of cosines: 1,114 groups at reference scale, and 640 columns in ten of them


def errors(scores: Tensor, contexts: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each context [C, 2W + 1], and the derivative with respect to each score.

    ``scores`` [C, 1 + K, 2W + 1]; the first target of each centre is the true one.
    """
    weight = live.unsqueeze(2) * contexts.unsqueeze(1)
    chance = torch.sigmoid(scores)
    chance = torch.where(scores.abs() > spec.SATURATION, (scores > 0).to(chance.dtype), chance)
    chance[:, 0] -= 1
    losses = F.softplus(scores)
    losses[:, 0] -= scores[:, 0]  # softplus(-x) is softplus(x) - x
    return (losses * weight).sum(dim=1), chance * weight


def rows(table: Tensor, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows ``ids`` [...] of ``table`` [V, D] as ``dtype``: [..., D]."""
    return F.embedding(ids, table).to(dtype)


def gradients(
    tables: tuple[Tensor, Tensor],
    words: Tensor,
    targets: Tensor,
    contexts: Tensor,
    live: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [C, 2W + 1], and the gradients of their sum with respect to the rows that the ids name.

    ``words`` [C + 2W] are ids of the first table, ``targets`` [C, 1 + K] of the second. The gradients, in the
    type of the tables, are [C + 2W, D] and [C, 1 + K, D], one per id. Products are in ``dtype``.
    """
    full, span = contexts.dtype, contexts.shape[1]
    target_rows = rows(tables[1], targets, dtype)
    windows = rows(tables[0], words, dtype).unfold(0, span, 1)  # [C, D, 2W + 1], a view
    losses, error = errors(torch.bmm(target_rows, windows).to(full), contexts, live)
    error = error.to(dtype)
    by_target = torch.bmm(error, windows.transpose(1, 2)).to(full)
    by_context = torch.bmm(error.transpose(1, 2), target_rows).to(full)
    by_word = by_context.new_zeros(len(words), by_context.shape[2])
    for offset in range(span):
        by_word[offset : offset + len(by_context)] += by_context[:, offset]
    return losses, by_word, by_target


def largest(similar: Tensor, queries: Tensor, known: int) -> tuple[Tensor, Tensor]:
    """The largest cosines [n, 10] of rows of ``similar`` [n, whole groups], descending, and their columns.

    Without the column ``queries`` [n] of the row, its own word, and those from ``known``. The largest are in
    the ten groups of columns with the largest maxima: one fused pass finds these, where ``topk`` of whole
    rows reads them many times.
    """

    def of_others(columns: Tensor, values: Tensor) -> Tensor:
        return torch.where((columns < known) & (columns != queries.view(-1, 1, 1)), values, -2)

    columns = torch.arange(similar.shape[1], device=similar.device).unflatten(0, (-1, GROUP))
    grouped = similar.unflatten(1, (-1, GROUP))
    maxima = of_others(columns, grouped).amax(dim=2)
    groups = maxima.topk(spec.NEIGHBOURS, sorted=False).indices
    values = grouped.gather(1, groups.unsqueeze(2).expand(-1, -1, GROUP))
    chosen = columns[groups]
    cosines, at = of_others(chosen, values).flatten(1).topk(spec.NEIGHBOURS)
    return cosines, chosen.flatten(1).gather(1, at)
