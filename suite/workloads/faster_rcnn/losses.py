"""The four losses of Faster R-CNN over the sampled anchors and regions, in the operations of ``ops.py``."""

from __future__ import annotations

from suite.workloads.faster_rcnn import spec
from suite.workloads.faster_rcnn.ops import Ops, T
from suite.workloads.faster_rcnn.regions import Sampled


def proposal_losses(o: Ops, logits: T, deltas: T, chosen: Sampled) -> T:
    """Binary cross-entropy of the sampled anchors' scores, and smooth L1 of the positive anchors' boxes.

    ``logits`` [batch, anchors], ``deltas`` [batch, anchors, 4]. Both are divided by the number of samples.
    """
    score = o.gather(logits, chosen.index)
    entropy = o.at_least(score, 0.0) - score * chosen.labels + o.log(1.0 + o.exp(-o.absolute(score)))
    box_loss = _smooth_l1(o, o.gather(deltas, chosen.index) - chosen.targets)
    return _mean(o, entropy + box_loss * chosen.labels, chosen.valid)


def region_losses(o: Ops, dims: spec.Dimensions, logits: T, deltas: T, chosen: Sampled) -> T:
    """Cross-entropy of the regions' classes, and for objects smooth L1 of the true class's box.

    ``logits`` [batch, k, classes], ``deltas`` [.., 4 classes]. Both are divided by the number of regions.
    """
    classes = o.expand_dims(o.expand_dims(o.arange(dims.classes), 0), 0)
    one_hot = o.mask(classes == o.expand_dims(chosen.labels, -1))
    entropy = -o.sum(o.log_softmax(logits) * one_hot, -1)
    batch, count = chosen.index.shape
    by_class = o.reshape(deltas, (batch, count, dims.classes, 4))
    box_loss = _smooth_l1(o, o.sum(by_class * o.expand_dims(one_hot, -1), 2) - chosen.targets)
    return _mean(o, entropy + box_loss * o.mask(chosen.labels > 0), chosen.valid)


def _smooth_l1(o: Ops, difference: T) -> T:
    """Smooth L1 (Girshick, "Fast R-CNN", ICCV 2015) summed over the last axis."""
    size = o.absolute(difference)
    near = o.mask(size < spec.BETA)
    straight = size - 0.5 * spec.BETA
    return o.sum(near * (difference * difference * (0.5 / spec.BETA)) + (1.0 - near) * straight, -1)


def _mean(o: Ops, losses: T, valid: T) -> T:
    """The mean of ``losses`` [batch, k] over the valid samples of the whole batch."""
    number = o.at_least(o.sum(o.sum(valid, 1), 0), 1.0)
    return o.sum(o.sum(losses * valid, 1), 0) / number
