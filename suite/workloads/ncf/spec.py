"""NCF: sizes, parameters, hyperparameters, units of work and analytic cost. Standard library only.

The model is NeuMF (He et al., "Neural Collaborative Filtering", WWW 2017; ``neumf.py`` of the authors' code
and of NVIDIA DeepLearningExamples): an element-wise product of two embeddings and an MLP over two others feed
one output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.contract import MEASURED_STEPS, STEPS, Job, Key, Parameter
from suite.workloads.rates import after_drops

NAME = "ncf"
FAMILY = ""
UNIT = "sample"
METRIC = "hr10"
VARIANTS = {"reference": ("f64", "f8"), "mini": ("f8", "f64")}
BATCHES = {"reference": (1_048_576, 65_536, 256), "mini": (256,)}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
DATASETS = {"reference": "ml-1m", "mini": "ml-1m-mini"}
LOADERS: Sequence[str] = ("native",)
SCENARIOS: Sequence[str] = ("offline", "single_stream", "forward_backward")
RECIPE_BATCH: int | None = 256  # the paper's; with the default batch an epoch would have only four steps

CANDIDATES = 99  # negatives that are ranked against the held-out positive of each user
EVALUATION_USERS = 1024  # per batch of the evaluation

# f8 is the paper's default for MovieLens-1M; f64 is MLPerf's model (v0.5) on the same data.
_FACTORS = {"f8": (8, (64, 32, 16, 8)), "f64": (64, (256, 256, 128, 64))}
_SIZES = {"reference": (6_040, 3_706), "mini": (943, 1_000)}


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of the model; ``layers`` are the widths of the MLP, with its input (both embeddings) first."""

    users: int
    items: int
    factors: int
    layers: tuple[int, ...]

    @property
    def half(self) -> int:
        """Width of one of the MLP's two embeddings."""
        return self.layers[0] // 2


def dimensions(scale: str, variant: str) -> Dimensions:
    """Sizes at ``scale``: those of MovieLens-1M, or of the generated mini dataset."""
    if variant not in VARIANTS.get(scale, ()):
        raise ValueError(f"ncf: expected one of {dict(VARIANTS)}, found scale {scale!r}, variant {variant!r}")
    return Dimensions(*_SIZES[scale], *_FACTORS[variant])


def hyperparameters(scale: str, variant: str) -> dict[str, str]:
    """The recipe of the paper's NeuMF; ``loss_scale`` is the initial scale in fp16."""
    dimensions(scale, variant)
    return {
        "rate": "1e-3",
        "beta1": "0.9",
        "beta2": "0.999",
        "epsilon": "1e-8",
        "negatives": "4",
        "loss_scale": "16384",
        "loss_growth": "2000",
        "rate_drops": "",
    }


def recipe_rate(hyper: Mapping[str, str], step: int) -> float:
    """The rate of step ``step``: constant except for ``rate_drops`` ("step:factor step:factor")."""
    return after_drops(float(hyper["rate"]), hyper["rate_drops"], step)


def learning_rate(job: Job, step: int, steps_per_epoch: int) -> float:
    """See :class:`suite.contract.Specification`."""
    del steps_per_epoch
    return recipe_rate(job.hyper, step)


def parameters(dims: Dimensions) -> tuple[Parameter, ...]:
    """Canonical tensors; weights of a layer are [outputs, inputs].

    Initial values as in the authors' code: embeddings N(0, 0.01), hidden layers Glorot uniform, the output
    LeCun uniform, biases zero.
    """
    tensors = [
        Parameter("mf.user", (dims.users, dims.factors), "normal", "0.01"),
        Parameter("mf.item", (dims.items, dims.factors), "normal", "0.01"),
        Parameter("mlp.user", (dims.users, dims.half), "normal", "0.01"),
        Parameter("mlp.item", (dims.items, dims.half), "normal", "0.01"),
    ]
    for layer, (inputs, outputs) in enumerate(zip(dims.layers, dims.layers[1:], strict=False), start=1):
        glorot = math.sqrt(6 / (inputs + outputs))
        tensors.append(Parameter(f"mlp.{layer}.weight", (outputs, inputs), "uniform", repr(glorot)))
        tensors.append(Parameter(f"mlp.{layer}.bias", (outputs,), "constant", "0"))
    joined = dims.factors + dims.layers[-1]
    tensors.append(Parameter("output.weight", (1, joined), "uniform", repr(math.sqrt(3 / joined))))
    tensors.append(Parameter("output.bias", (1,), "constant", "0"))
    return tuple(tensors)


def units(key: Key, seed: int) -> tuple[int, ...]:
    """Samples (positives and negatives) of each of the 110 steps, over all devices, for any seed."""
    del seed
    return (key.batch * key.devices,) * STEPS


def forward_macs(dims: Dimensions) -> int:
    """Multiply-accumulates of one sample: the layers, and one per factor of the element-wise product."""
    layers = sum(a * b for a, b in zip(dims.layers, dims.layers[1:], strict=False))
    return layers + dims.factors + dims.factors + dims.layers[-1]


def window_flop(key: Key) -> int:
    """Floating-point operations of the 100 measured steps: 1 MAC = 2, training is three forward passes."""
    passes = 3 if key.phase == "train" else 1
    samples = key.batch * key.devices * MEASURED_STEPS
    return 2 * passes * forward_macs(dimensions(key.scale, key.variant)) * samples


def window_bytes(key: Key) -> int:
    """Bytes that the 100 measured steps must move at least; intermediate values may stay on the chip.

    A training step reads user, item and label (4 bytes each) of a sample and reads and writes parameters and
    both moments, or without update reads parameters and writes the gradient. An inference step moves user,
    item and score of a sample and reads the layers: it needs only some rows of the embeddings.
    """
    specified = parameters(dimensions(key.scale, key.variant))
    total = sum(parameter.size for parameter in specified)
    layers = sum(one.size for one in specified if not one.name.endswith((".user", ".item")))
    width = 2 if key.phase == "infer" and key.precision in ("bf16", "fp16") else 4
    state = (6 if key.updates else 2) * 4 * total if key.phase == "train" else width * layers
    return (12 * key.batch + state) * key.devices * MEASURED_STEPS
