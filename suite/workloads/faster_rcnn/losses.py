"""The four losses of Faster R-CNN, each over what was chosen; written in ``ops.py`` for every framework."""

from __future__ import annotations

from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.ops import Ops, T
from suite.workloads.faster_rcnn.regions import Chosen


def proposal_losses(o: Ops, logits: T, deltas: T, chosen: Chosen) -> T:
    """Binary cross-entropy of the chosen anchors' scores, and smooth L1 of the positive ones' boxes.

    Each is divided by the number chosen. ``logits`` [batch, anchors], ``deltas`` [batch, anchors, 4].
    """
    score = o.take(logits, chosen.index)
    entropy = o.at_least(score, 0.0) - score * chosen.labels + o.log(1.0 + o.exp(-o.absolute(score)))
    apart = _smooth(o, o.take(deltas, chosen.index) - chosen.goals)
    return _mean(o, entropy + apart * chosen.labels, chosen.counts)


def region_losses(o: Ops, dims: spec.Dimensions, logits: T, deltas: T, chosen: Chosen) -> T:
    """Cross-entropy of the regions' classes, and smooth L1 of the right class's box for those of objects.

    Each is divided by the number of regions. ``logits`` [batch, k, classes], ``deltas`` [.., 4 classes].
    """
    every = o.expand(o.expand(o.span(dims.classes), 0), 0)
    right = o.mask(every == o.expand(chosen.labels, -1))
    entropy = -o.total(o.log_softmax(logits) * right, -1)
    batch, count = chosen.index.shape
    each = o.shaped(deltas, (batch, count, dims.classes, 4))
    apart = _smooth(o, o.total(each * o.expand(right, -1), 2) - chosen.goals)
    return _mean(o, entropy + apart * o.mask(chosen.labels > 0), chosen.counts)


def _smooth(o: Ops, difference: T) -> T:
    """Smooth L1 (Girshick, "Fast R-CNN", ICCV 2015) summed over the last axis."""
    size = o.absolute(difference)
    near = o.mask(size < spec.BETA)
    straight = size - 0.5 * spec.BETA
    return o.total(near * (difference * difference * (0.5 / spec.BETA)) + (1.0 - near) * straight, -1)


def _mean(o: Ops, losses: T, counts: T) -> T:
    """The mean of [batch, k] over what counts in the whole batch."""
    number = o.at_least(o.total(o.total(counts, 1), 0), 1.0)
    return o.total(o.total(losses * counts, 1), 0) / number
