"""Box average precision as COCO defines it, by pycocotools."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.datasets.errors import ScoringError
from suite.datasets.scores import Predictions, Score
from suite.workloads.faster_rcnn import spec

ARRAYS = {"boxes": ("f", 3), "scores": ("f", 2), "labels": ("i", 2), "image": ("i", 1)}


def score(predictions: Predictions) -> Score:
    """AP (mean over overlaps .5 to .95), and ``{"ap50": …, "ap75": …}``, of the validation set.

    ``boxes`` [n, k, 4] are corners in pixels of the resized image, ``scores`` [n, k] are 0 where there is no
    detection, ``labels`` [n, k] categories, ``image`` [n] the images' numbers, each exactly once.
    ScoringError for anything else.
    """
    from pycocotools.coco import COCO  # here, because only this function needs them
    from pycocotools.cocoeval import COCOeval

    arrays, dims = predictions.arrays, spec.dimensions(predictions.scale, spec.VARIANTS[predictions.scale][0])
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet):  # both report their progress
        truth = COCO(str(predictions.folder / "annotations" / "instances_val2017.json"))
    _check(arrays, truth.getImgIds(), dims.classes)
    rows = []
    for row, number in enumerate(arrays["image"].tolist()):
        known = truth.imgs[number]
        height, width = spec.resized(dims, known["height"], known["width"])
        there = arrays["scores"][row] > 0
        ratio = np.array((known["width"] / width, known["height"] / height))
        corners = arrays["boxes"][row][there].astype(np.float64) * np.tile(ratio, 2)
        sides = corners[:, 2:] - corners[:, :2]
        score, label = arrays["scores"][row][there], arrays["labels"][row][there]
        image = np.full(len(score), number)
        rows.append(np.column_stack((image, corners[:, :2], sides, score, label)))
    found = np.concatenate(rows)
    if not len(found):
        return Score("box_ap", 0.0, {"ap50": 0.0, "ap75": 0.0})
    with contextlib.redirect_stdout(quiet):
        evaluation = COCOeval(truth, truth.loadRes(found), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    average, half, three_quarters = (max(0.0, float(value)) for value in evaluation.stats[:3])
    return Score("box_ap", average, {"ap50": half, "ap75": three_quarters})


def _check(arrays: Mapping[str, NDArray[Any]], numbers: list[int], classes: int) -> None:
    boxes, scores, labels, image = (arrays[name] for name in ARRAYS)
    if boxes.shape != (*scores.shape, 4) or labels.shape != scores.shape or len(image) != len(scores):
        shapes = [boxes.shape, scores.shape, labels.shape, image.shape]
        raise ScoringError(f"expected boxes [n, k, 4], scores and labels [n, k], image [n], found {shapes}.")
    if sorted(image.tolist()) != sorted(numbers):
        raise ScoringError(
            f"image: expected each of the {len(numbers)} validation images exactly once, found {len(image)} "
            f"with {len(np.unique(image))} different numbers."
        )
    if not np.isfinite(boxes).all() or not ((scores >= 0) & (scores <= 1)).all():
        raise ScoringError("expected finite boxes and scores in 0..1, found others.")
    there = scores > 0
    if there.any() and not ((labels[there] > 0) & (labels[there] < classes)).all():
        raise ScoringError(f"labels: expected categories in 1..{classes - 1}, found others.")
