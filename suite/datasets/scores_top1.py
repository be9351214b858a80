"""Accuracy of the classifiers: how often the right class comes first, and among the first five."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.datasets.errors import DatasetCorrupt, ScoringError
from suite.workloads import specification
from suite.workloads._classification.sources import validation_labels
from suite.workloads.contract import BadData

METRIC = "top1"
BEST = 5

Integers = NDArray[np.integer[Any]]


def accuracy(
    workload: str, folder: Path, arrays: Mapping[str, Integers], scale: str
) -> tuple[str, float, dict[str, float]]:
    """Metric, top-1 and ``{"top5": …}``, shares of the validation set of ``folder``.

    ``top5`` [n, 5] holds different classes, the best first (fewer columns where there are fewer classes);
    ``index`` [n] the places of the images, each exactly once. ScoringError for anything else.
    """
    spec: Any = specification(workload)
    classes = spec.dimensions(scale, spec.VARIANTS[scale][0]).classes
    labels = _labels(folder, classes)
    best, index = arrays["top5"], arrays["index"]
    columns = min(BEST, classes)
    if best.shape[1] != columns or len(best) != len(index):
        raise ScoringError(f"top5: expected [{len(index)}, {columns}] as index has it, found {best.shape}.")
    if not np.array_equal(np.sort(index), np.arange(len(labels))):
        raise ScoringError(
            f"index: expected each of the {len(labels)} images exactly once, found {len(index)} with "
            f"{len(np.unique(index))} different places."
        )
    if int(best.min()) < 0 or int(best.max()) >= classes:
        raise ScoringError(f"top5: expected classes in 0..{classes - 1}, found {best.min()}..{best.max()}.")
    if not np.diff(np.sort(best, axis=1), axis=1).all():
        raise ScoringError("top5: expected different classes for an image, found one twice.")
    right = best == labels[index][:, None]
    return METRIC, float(right[:, 0].mean()), {"top5": float(right.any(axis=1).mean())}


@lru_cache(maxsize=1)  # a run evaluates one dataset many times, and it does not change
def _labels(folder: Path, classes: int) -> NDArray[np.int32]:
    try:
        return validation_labels(folder, classes)
    except BadData as error:
        raise DatasetCorrupt(
            str(folder), "labels that can be read", str(error), "Prepare it again."
        ) from error
