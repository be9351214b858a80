"""word2vec's choice of the nearest words on a GPU against ``topk``, on the CPU.

``python -m tests.equivalence.word2vec_nearest`` prints a JSON line for each example: the largest difference
of cosines, whether the words have these cosines and differ, and whether they are those of ``topk``, which
they need not be where cosines are equal.
"""

from __future__ import annotations

import json

import torch

from suite.workloads.word2vec import spec
from suite.workloads.word2vec.pytorch_ops import GROUP, largest

QUERIES, KNOWN = 50, 20 * GROUP - 7


def found(steps: int) -> dict[str, float | bool]:
    """The results for cosines that are multiples of 1 / ``steps``."""
    generator = torch.Generator().manual_seed(steps)
    similar = torch.randint(-steps, steps + 1, (QUERIES, 20 * GROUP), generator=generator) / steps
    queries = torch.randint(KNOWN, (QUERIES,), generator=generator, dtype=torch.int32)
    similar[:, KNOWN:] = 1.5  # the columns of padding must not be chosen
    similar[torch.arange(QUERIES), queries.long()] = 1.25
    cosines, words = largest(similar, queries, KNOWN)
    own = queries.long().unsqueeze(1)
    wanted, at = similar[:, :KNOWN].scatter(1, own, -2).topk(spec.NEIGHBOURS)
    different = all(len(set(row)) == spec.NEIGHBOURS for row in words.tolist())
    return {
        "difference": float((cosines - wanted).abs().max()),
        "have": torch.equal(similar.gather(1, words), cosines) and different,
        "same": torch.equal(words, at),
    }


def main() -> None:
    """See the module."""
    for steps in (4, 1 << 24):
        print(json.dumps(found(steps)))


if __name__ == "__main__":
    main()
