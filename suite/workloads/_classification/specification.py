"""The specification of every image classifier; a workload adds its network and its recipe.

Standard library only: harness, worker and checker import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from suite.common import layers
from suite.contract import MEASURED_STEPS, STEPS, Job, Key, Parameter
from suite.workloads.rates import after_drops

IMAGENET_MEAN, IMAGENET_SCALE = ("0.485", "0.456", "0.406"), ("0.229", "0.224", "0.225")
CIFAR_MEAN, CIFAR_SCALE = ("0.4914", "0.4822", "0.4465"), ("0.2023", "0.1994", "0.2010")


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes and initial values of one model.

    ``width`` is the number of channels of the first convolution, ``hidden`` the width of hidden fully
    connected layers (0: there are none). ``decay`` is the share that the running statistics keep in a step:
    smaller at mini scale, where an evaluation follows after few steps. ``gamma`` is the initial scale of the
    last normalisation in a residual block: below 1 at mini scale, where batches are small and rounding errors
    grow in a deep network. ``beta`` is the initial shift of a normalisation before a ReLU: positive at mini
    scale, so that a deep network learns from small batches. ``gain`` multiplies initial weights where the
    published ones learn slowly at first.
    """

    image: int  # side of the square input in pixels
    classes: int
    width: int
    hidden: int = 0
    decay: str = "0.9"
    gamma: str = "1"
    beta: str = "0"
    gain: float = 1.0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        return (3, self.image, self.image)


@dataclass(frozen=True)
class Classification:
    """A :class:`suite.contract.Specification`; names in capitals are the contract's.

    ``network`` maps sizes to layers. ``SIZES`` and ``RECIPES`` are by scale; a recipe's ``rate`` is for a
    global batch of ``rate_batch`` and scales linearly with the batch.
    """

    NAME: str
    network: Callable[[Dimensions], layers.Network]
    SIZES: Mapping[str, Dimensions]
    RECIPES: Mapping[str, Mapping[str, str]]
    BATCHES: Mapping[str, Sequence[int]]
    DATASETS: Mapping[str, str]
    MEAN: tuple[str, str, str]
    SCALE: tuple[str, str, str]
    VARIANT: str = "v1"  # the version of the published model

    FAMILY: ClassVar[str] = "_classification"
    UNIT: ClassVar[str] = "image"
    METRIC: ClassVar[str] = "top1"
    PRECISIONS: ClassVar[Sequence[str]] = ("fp32", "tf32", "bf16", "fp16")
    SCENARIOS: ClassVar[Sequence[str]] = ("offline", "single_stream", "forward_backward")
    RECIPE_BATCH: ClassVar[int | None] = None

    @property
    def LOADERS(self) -> tuple[str, ...]:  # noqa: N802 - like a name of the contract
        """Readers of the images; CIFAR-10 holds raw pixels, which are not decoded."""
        raw_pixels = any(name.startswith("cifar") for name in self.DATASETS.values())
        return ("native",) if raw_pixels else ("native", "dali", "pillow")

    @property
    def VARIANTS(self) -> Mapping[str, Sequence[str]]:  # noqa: N802 - the contract's name
        """One variant at each scale."""
        return dict.fromkeys(self.SIZES, (self.VARIANT,))

    def dimensions(self, scale: str, variant: str) -> Dimensions:
        """The model's sizes; ValueError for an unknown scale or variant."""
        if variant not in self.VARIANTS.get(scale, ()):
            known = dict(self.VARIANTS)
            raise ValueError(
                f"{self.NAME}: expected one of {known}, found scale {scale!r}, variant {variant!r}"
            )
        return self.SIZES[scale]

    def hyperparameters(self, scale: str, variant: str) -> dict[str, str]:
        """The recipe. ``clip`` 0: no clipping; ``loss_scale``: the initial scale in fp16."""
        self.dimensions(scale, variant)
        return {
            "rate": "0.1",
            "rate_batch": "256",
            "momentum": "0.9",
            "weight_decay": "1e-4",
            "smoothing": "0",
            "dropout": "0",
            "clip": "0",
            "warmup_steps": "0",
            "cosine_steps": "0",
            "rate_every": "",
            "loss_scale": "1024",
            "loss_growth": "2000",
            "rate_drops": "",
        } | dict(self.RECIPES[scale])

    def parameters(self, dims: Dimensions) -> tuple[Parameter, ...]:
        """Canonical tensors in the order of computation; kernels are [outputs, inputs, height, width]."""
        return layers.parameters(self.network(dims))

    def recipe_rate(self, hyper: Mapping[str, str], step: int) -> float:
        """The rate of step ``step`` at the recipe's batch.

        Linear warm-up, then a cosine that reaches zero at step ``cosine_steps`` (Loshchilov and Hutter,
        "SGDR", ICLR 2017). ``rate_every`` ("steps:factor") multiplies the rate every so many steps,
        ``rate_drops`` ("step:factor step:factor") once at each step.
        """
        rate, warmup, cosine = float(hyper["rate"]), int(hyper["warmup_steps"]), int(hyper["cosine_steps"])
        if step < warmup:
            return rate * (step + 1) / warmup
        if cosine:
            done = min(1.0, (step - warmup) / max(1, cosine - warmup))
            rate *= 0.5 * (1 + math.cos(math.pi * done))
        if hyper["rate_every"]:
            every, factor = hyper["rate_every"].split(":")
            rate *= float(factor) ** (step // int(every))
        return after_drops(rate, hyper["rate_drops"], step)

    def learning_rate(self, job: Job, step: int, steps_per_epoch: int) -> float:
        """See :class:`suite.contract.Specification`; quality runs scale steps and rate to the batch."""
        del steps_per_epoch
        ratio = job.key.batch * job.key.devices / float(job.hyper["rate_batch"])
        if job.mode == "throughput":  # the same rate at every batch: losses stay comparable
            ratio = 1.0
        return self.recipe_rate(job.hyper, int(step * ratio)) * ratio

    def units(self, key: Key, seed: int) -> tuple[int, ...]:
        """Images of each of the 110 steps, over all devices; independent of the seed."""
        del seed
        return (key.batch * key.devices,) * STEPS

    def window_flop(self, key: Key) -> int:
        """Floating-point operations of the products in the 100 measured steps; 1 MAC = 2."""
        dims = self.dimensions(key.scale, key.variant)
        count = layers.training_macs if key.phase == "train" else layers.macs
        return 2 * count(self.network(dims), dims.shape) * key.batch * key.devices * MEASURED_STEPS

    def window_bytes(self, key: Key) -> int:
        """Bytes that the 100 measured steps must move at least; every step moves its images and the state.

        Training reads and writes parameters and velocities, or without update reads the former and writes the
        gradient. Inference reads parameters and writes outputs.
        """
        dims = self.dimensions(key.scale, key.variant)
        total = sum(parameter.size for parameter in self.parameters(dims))
        images = 3 * dims.image * dims.image * key.batch
        width = 2 if key.phase == "infer" and key.precision in ("bf16", "fp16") else 4
        trained = 4 * 4 if key.updates else 2 * 4
        state = trained * total if key.phase == "train" else width * total + 4 * dims.classes * key.batch
        return (images + state) * key.devices * MEASURED_STEPS
