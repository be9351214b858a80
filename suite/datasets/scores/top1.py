"""Accuracy of the classifiers: how often the right class comes first, and among the first five."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.contract import BadData
from suite.datasets.errors import DatasetCorrupt, ScoringError
from suite.datasets.scores import Predictions, Score
from suite.workloads import specification
from suite.workloads._classification.sources import validation_labels

ARRAYS = {"top5": ("i", 2), "index": ("i", 1)}
BEST = 5


def score(predictions: Predictions) -> Score:
    """Top-1 and ``{"top5": …}``, shares of the validation set.

    ``top5`` [n, 5] holds different classes, the best first (fewer columns where there are fewer classes);
    ``index`` [n] the positions of the images, each exactly once. ScoringError for anything else.
    """
    spec: Any = specification(predictions.workload)
    classes = spec.dimensions(predictions.scale, spec.VARIANTS[predictions.scale][0]).classes
    labels = _labels(predictions.folder, classes)
    best, index = predictions.arrays["top5"], predictions.arrays["index"]
    columns = min(BEST, classes)
    if best.shape[1] != columns or len(best) != len(index):
        raise ScoringError(f"top5: expected [{len(index)}, {columns}] as index has it, found {best.shape}.")
    if not np.array_equal(np.sort(index), np.arange(len(labels))):
        raise ScoringError(
            f"index: expected each of the {len(labels)} images exactly once, found {len(index)} with "
            f"{len(np.unique(index))} different positions."
        )
    if int(best.min()) < 0 or int(best.max()) >= classes:
        raise ScoringError(f"top5: expected classes in 0..{classes - 1}, found {best.min()}..{best.max()}.")
    if not np.diff(np.sort(best, axis=1), axis=1).all():
        raise ScoringError("top5: expected different classes for an image, found one twice.")
    right = best == labels[index][:, None]
    return Score("top1", float(right[:, 0].mean()), {"top5": float(right.any(axis=1).mean())})


@lru_cache(maxsize=1)  # a run evaluates one dataset many times, and it does not change
def _labels(folder: Path, classes: int) -> NDArray[np.int32]:
    try:
        return validation_labels(folder, classes)
    except BadData as error:
        raise DatasetCorrupt(
            str(folder), "labels that can be read", str(error), "Prepare it again."
        ) from error
