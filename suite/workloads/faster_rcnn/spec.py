"""Faster R-CNN with a ResNet-50 feature pyramid: sizes, parameters, recipe, cost. Standard library only.

Ren et al., "Faster R-CNN", NeurIPS 2015, with Lin et al., "Feature Pyramid Networks for Object Detection",
CVPR 2017; constants as in torchvision's ``fasterrcnn_resnet50_fpn``. The backbone is that of ``resnet50``
with each normalisation frozen to a scale and a shift; the stem and the first stage are frozen too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from suite.common import layers
from suite.common.layers import Conv, Dense, MaxPool, Network, Relu
from suite.contract import MEASURED_STEPS, STEPS, Job, Key, Parameter
from suite.workloads._classification import resnet
from suite.workloads._classification import specification as classification
from suite.workloads._classification.specification import IMAGENET_MEAN, IMAGENET_SCALE
from suite.workloads.rates import after_drops

NAME = "faster_rcnn"
FAMILY = ""
UNIT = "image"
METRIC = "box_ap"
VARIANTS = {"reference": ("r50-fpn",), "mini": ("r50-fpn",)}
BATCHES = {"reference": (8, 1, 2, 4, 16, 32), "mini": (4, 1, 2, 8)}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
LOADERS: Sequence[str] = ("native", "dali", "pillow")
SCENARIOS: Sequence[str] = ("offline", "single_stream", "forward_backward")
DATASETS = {"reference": "coco-2017", "mini": "coco-mini"}
RECIPE_BATCH: int | None = None
MEAN, SCALE = IMAGENET_MEAN, IMAGENET_SCALE

STRIDES = (4, 8, 16, 32, 64)  # of the pyramid's five levels
POOLED_LEVELS = 4  # the last level has proposals only
RATIOS = ("0.5", "1", "2")  # height over width of the anchors
FROZEN_STAGES = 2  # the stem and the first stage
SAMPLES = 2  # per axis of each bin, in pooling
# Without a trained backbone's statistics: a small last scale in each block keeps the sums of blocks small.
BLOCK_SCALE = 0.25

PROPOSAL_POSITIVE, PROPOSAL_NEGATIVE = 0.7, 0.3  # overlap of an anchor with an object
PROPOSAL_NMS, DETECTION_NMS = 0.7, 0.5  # largest overlap that non-maximum suppression leaves
REGION_POSITIVE = 0.5  # overlap of a region with an object
LEAST_SCORE = 0.05  # of a detection
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)  # of the encoding of the box head's boxes
BETA = 1 / 9  # where smooth L1 changes from quadratic to linear
LARGEST_STRETCH = math.log(1000 / 16)  # upper limit of the logarithm of a side's growth in decoding


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of the model. Of a pair of numbers the first is for training, the second for inference."""

    short: int  # short side of an image after resizing
    long: int  # its long side at most
    width: int  # channels of the stem
    blocks: tuple[int, ...]
    channels: int  # of the pyramid
    hidden: int  # of the box head
    classes: int  # including the background, 0
    anchors: tuple[int, ...]  # side of the anchors at each level
    canonical: int  # side of the square box that is pooled from the third level
    pool: int  # bins per axis of a pooled region
    objects: int  # most objects of an image; further ones are dropped
    sampled: int  # anchors of an image that are sampled for the losses
    regions: int  # regions of an image that are sampled for the losses
    before: tuple[int, int]  # proposals of a level before suppression
    after: tuple[int, int]  # proposals of an image after it
    candidates: int  # detections of an image before suppression
    detections: int  # and after it
    rounds: int  # of suppression

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Heights and widths of batches: landscape and portrait, each side a multiple of 32."""
        short, long = (-(-side // 32) * 32 for side in (self.short, self.long))
        return ((short, long),) if short == long else ((short, long), (long, short))

    def grids(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Height and width of each pyramid level for images of ``height`` and ``width``."""
        return tuple((-(-height // stride), -(-width // stride)) for stride in STRIDES)


_SIZES = {
    "reference": Dimensions(
        short=800,
        long=1333,
        width=64,
        blocks=(3, 4, 6, 3),
        channels=256,
        hidden=1024,
        classes=91,  # COCO's ids run to 90, with gaps
        anchors=(32, 64, 128, 256, 512),
        canonical=224,
        pool=7,
        objects=100,
        sampled=256,
        regions=512,
        before=(2000, 1000),
        after=(2000, 1000),
        candidates=1000,
        detections=100,
        rounds=16,
    ),
    "mini": Dimensions(
        short=128,
        long=128,
        width=16,
        blocks=(1, 1, 2, 1),  # one of them without a projection
        channels=24,
        hidden=128,
        classes=4,
        anchors=(12, 24, 48, 96, 128),
        canonical=56,
        pool=4,
        objects=4,
        sampled=64,
        regions=32,
        before=(96, 64),
        after=(64, 32),
        candidates=64,
        detections=16,
        rounds=8,
    ),
}

# torchvision's detection recipe: 26 epochs, the rate divided by ten at epochs 16 and 22. An epoch is 7,329
# steps of 16 images: 117,266 of the 118,287 images show an object.
_RECIPES = {
    "reference": {"rate": "0.02", "warmup_steps": "1000", "rate_drops": "117264:0.1 161238:0.1"},
    "mini": {"rate": "0.02", "rate_batch": "4", "warmup_steps": "20", "warmup_start": "0.1"},
}


def dimensions(scale: str, variant: str) -> Dimensions:
    """The model's sizes; ValueError for an unknown scale or variant."""
    if variant not in VARIANTS.get(scale, ()):
        raise ValueError(f"{NAME}: expected one of {VARIANTS}, found scale {scale!r}, variant {variant!r}")
    return _SIZES[scale]


def hyperparameters(scale: str, variant: str) -> dict[str, str]:
    """The recipe. ``clip`` 0: no clipping; ``loss_scale``: the initial scale in fp16."""
    dimensions(scale, variant)
    return {
        "rate": "0.02",
        "rate_batch": "16",
        "momentum": "0.9",
        "weight_decay": "1e-4",
        "clip": "0",
        "warmup_steps": "0",
        "warmup_start": "0.001",
        "loss_scale": "256",
        "loss_growth": "2000",
        "rate_drops": "",
    } | _RECIPES[scale]


def recipe_rate(hyper: Mapping[str, str], step: int) -> float:
    """The rate of step ``step`` at the recipe's batch: linear warm-up, then ``rate_drops``."""
    rate, warmup, start = float(hyper["rate"]), int(hyper["warmup_steps"]), float(hyper["warmup_start"])
    if step < warmup:
        rate *= start + (1 - start) * step / warmup
    return after_drops(rate, hyper["rate_drops"], step)


def learning_rate(job: Job, step: int, steps_per_epoch: int) -> float:
    """See :class:`suite.contract.Specification`; quality runs scale steps and rate to the global batch."""
    del steps_per_epoch
    if job.mode == "throughput":  # the same rate at every batch: losses stay comparable
        return recipe_rate(job.hyper, step)
    ratio = job.key.batch * job.key.devices / float(job.hyper["rate_batch"])
    return recipe_rate(job.hyper, int(step * ratio)) * ratio


# The network


def backbone(dims: Dimensions) -> tuple[Network, ...]:
    """The stem and the stages; the stages' outputs are the inputs of the pyramid."""
    trunk = classification.Dimensions(dims.short, dims.classes, dims.width)
    blocks = resnet.stages(trunk, dims.blocks)
    stem = (*resnet.convolved("stem", 3, dims.width, 7, trunk.decay, stride=2), Relu(), MaxPool(3, 2, 1))
    found: list[Network] = [stem]
    at = 0
    for count in dims.blocks:
        found.append(blocks[at : at + count])
        at += count
    return tuple(found)


def laterals(dims: Dimensions) -> tuple[Conv, ...]:
    """1x1 convolutions of the stages' outputs, finest first."""
    return tuple(
        _pyramid(f"fpn.lateral{level}", dims.width * resnet.EXPANSION << level, dims.channels, 1)
        for level in range(len(dims.blocks))
    )


def smoothers(dims: Dimensions) -> tuple[Conv, ...]:
    """3x3 convolutions of the pyramid's levels, finest first."""
    return tuple(
        _pyramid(f"fpn.output{level}", dims.channels, dims.channels, 3) for level in range(len(dims.blocks))
    )


def _pyramid(name: str, inputs: int, outputs: int, kernel: int) -> Conv:
    bound = (
        "uniform",
        repr(math.sqrt(3 / (inputs * kernel * kernel))),
    )  # He's uniform initialisation with slope 1
    return Conv(name, inputs, outputs, (kernel, kernel), 1, (kernel // 2, kernel // 2), True, bound)


def proposer(dims: Dimensions) -> tuple[Conv, Conv, Conv]:
    """The region proposal network, shared by all levels: hidden, score of each anchor, box of each anchor."""
    init = ("normal", "0.01")
    ratios = len(RATIOS)
    return (
        Conv("rpn.hidden", dims.channels, dims.channels, (3, 3), 1, (1, 1), True, init),
        Conv("rpn.score", dims.channels, ratios, (1, 1), 1, (0, 0), True, init),
        Conv("rpn.box", dims.channels, 4 * ratios, (1, 1), 1, (0, 0), True, init),
    )


def head(dims: Dimensions) -> tuple[Dense, Dense, Dense, Dense]:
    """The fully connected layers of the box head: two hidden ones, class scores, a box for each class.

    The input of the first is the pooled features [channels, pool, pool], flattened.
    """

    def dense(name: str, inputs: int, outputs: int) -> Dense:
        bound = ("uniform", repr(1 / math.sqrt(inputs)))
        return Dense(f"head.{name}", inputs, outputs, bound, bound)

    return (
        dense("hidden0", dims.channels * dims.pool * dims.pool, dims.hidden),
        dense("hidden1", dims.hidden, dims.hidden),
        dense("score", dims.hidden, dims.classes),
        dense("box", dims.hidden, 4 * dims.classes),
    )


def convolutions(network: Network) -> tuple[Conv, ...]:
    """All convolutions of ``network``, including those within blocks, in the order of computation."""
    return tuple(layer for layer in layers.walk(network) if isinstance(layer, Conv))


def parameters(dims: Dimensions) -> tuple[Parameter, ...]:
    """Canonical tensors in the order of computation, the frozen ones first; 41,755,286 numbers in R50-FPN.

    Kernels are [outputs, inputs, height, width]. The scales and shifts of the frozen normalisations are not
    included.
    """
    body = [layer for part in backbone(dims) for layer in convolutions(part)]
    pyramid = (*laterals(dims), *smoothers(dims))
    return layers.parameters((*body, *pyramid, *proposer(dims), *head(dims)))


def frozen(dims: Dimensions) -> tuple[str, ...]:
    """Names of the frozen parameters: their gradient is zero and they do not decay."""
    parts = backbone(dims)[:FROZEN_STAGES]
    return tuple(p.name for part in parts for p in layers.parameters(convolutions(part)))


def norm_scales(dims: Dimensions) -> dict[str, float]:
    """The scale of each frozen normalisation, the same for all its channels; shifts are zero.

    These replace the statistics of a backbone trained on ImageNet, which the suite does not ship.
    """
    found: dict[str, float] = {}
    for part in backbone(dims):
        for block in part:
            if isinstance(block, layers.Residual):
                norms = layers.statistics(block.body)
                found |= {norm.name: BLOCK_SCALE if norm is norms[-1] else 1.0 for norm in norms}
                found |= {norm.name: 1.0 for norm in layers.statistics(block.shortcut)}
            elif isinstance(block, layers.BatchNorm):
                found[block.name] = 1.0
    return found


# Images


def resized(dims: Dimensions, height: int, width: int) -> tuple[int, int]:
    """Height and width of an image after resizing; halves round up.

    The short side becomes ``dims.short``, or less where the long side would exceed ``dims.long``.
    """
    short, long = sorted((height, width))
    if long * dims.short > dims.long * short:
        target, side = dims.long, long
    else:
        target, side = dims.short, short
    return (2 * height * target + side) // (2 * side), (2 * width * target + side) // (2 * side)


# Cost


def units(key: Key, seed: int) -> tuple[int, ...]:
    """Images of each of the 110 steps, over all devices; independent of the seed."""
    del seed
    return (key.batch * key.devices,) * STEPS


def _parts(
    dims: Dimensions, shape: tuple[int, int], regions: int, training: bool
) -> Iterator[tuple[int, int]]:
    """Multiply-accumulates of each part's forward pass, and how many times a step computes as many.

    A training step computes frozen parts once, the layers directly behind them twice (without the gradient
    of their input), all others three times. Inference computes each part once.
    """
    here: layers.Shape = (3, *shape)
    outputs: list[layers.Shape] = []
    for number, part in enumerate(backbone(dims)):
        frozen_part = number < FROZEN_STAGES
        total = layers.macs(part, here)
        if number == FROZEN_STAGES:
            first = part[0]
            if not isinstance(first, layers.Residual):
                raise TypeError(f"expected a residual block, found {first}")
            entering = (*first.body[:1], *first.shortcut[:1])
            shallow = sum(layers.macs((layer,), here) for layer in entering)
            yield -shallow, 1 if training else 0
        yield total, 1 if frozen_part or not training else 3
        here = layers.output_shape(part, here)
        outputs.append(here)
    for level, (lateral, smoother) in enumerate(zip(laterals(dims), smoothers(dims), strict=True)):
        size = outputs[level + 1]
        times = 3 if training else 1
        yield layers.macs((lateral,), size), times - (training and level == 0)
        yield layers.macs((smoother,), (dims.channels, *size[1:])), times
    for grid in dims.grids(*shape):
        for layer in proposer(dims):
            yield layers.macs((layer,), (dims.channels, *grid)), 3 if training else 1
    per_region = sum(layer.inputs * layer.outputs for layer in head(dims))
    yield per_region * regions, 3 if training else 1


def image_macs(dims: Dimensions, shape: tuple[int, int], training: bool) -> int:
    """Multiply-accumulates for one image of (height, width) ``shape``: convolutions and dense layers only."""
    regions = dims.regions if training else dims.after[1]
    return sum(count * times for count, times in _parts(dims, shape, regions, training))


def window_flop(key: Key) -> int:
    """Floating-point operations of the products in the 100 measured steps; 1 MAC = 2."""
    dims = dimensions(key.scale, key.variant)
    per_image = image_macs(dims, dims.shapes[0], key.phase == "train")  # equal for portrait and landscape
    return 2 * per_image * key.batch * key.devices * MEASURED_STEPS


def window_bytes(key: Key) -> int:
    """Bytes that the 100 measured steps must move at least; every step moves its images and the state.

    Training reads and writes trained parameters and velocities, or without update reads the former and writes
    the gradient, and reads frozen parameters. Inference reads the parameters.
    """
    dims = dimensions(key.scale, key.variant)
    frozen_names = set(frozen(dims))
    sizes = [(p.size, p.name in frozen_names) for p in parameters(dims)]
    height, width = dims.shapes[0]
    images = 3 * height * width * key.batch
    if key.phase == "train":
        trained = 16 if key.updates else 8
        state = sum((4 if is_frozen else trained) * size for size, is_frozen in sizes)
    else:
        bytes_each = 2 if key.precision in ("bf16", "fp16") else 4
        state = bytes_each * sum(size for size, _ in sizes) + 24 * dims.detections * key.batch
    return (images + state) * key.devices * MEASURED_STEPS
