"""word2vec: sizes, parameters, hyperparameters, units of work and analytic cost. Standard library only.

Skip-gram with negative sampling (Mikolov et al., "Distributed Representations of Words and Phrases and their
Compositionality", NIPS 2013; ``word2vec.c`` of the authors): a table with a row for each word as context,
another with a row for each word as centre, and a logistic loss that separates the centre from random words.

``word2vec.c`` trains one pair at a time, which suits no framework. The suite batches as Ji et al.,
"Parallelizing Word2Vec in Shared and Distributed Memory" (arXiv:1604.04661): the contexts of one centre share
its negatives. Each pair still has K negatives from the same distribution and costs the same operations; Ji et
al. report the accuracy of the original. A step reads a fixed number of corpus words before sub-sampling. Its
gradients are those of the sum over all its pairs at the weights before the step, and the update of a row is

    w -= rate * min(1, row_pairs / n) * gradient

with n the number of the step's pairs that touch the row. Up to ``row_pairs`` pairs this is the sum of their
updates. Beyond, where the sum would overshoot (thousands of pairs touch ``the``), it is a scaled mean. Rows
that the step does not touch keep their values, so that sparse and dense updates are the same computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.contract import MEASURED_STEPS, STEPS, Job, Key, Parameter
from suite.workloads.rates import after_drops

NAME = "word2vec"
FAMILY = ""
UNIT = "word"  # train: a word of the corpus before sub-sampling; infer: a query
METRIC = "analogy"
VARIANTS = {"reference": ("d200", "d100"), "mini": ("d100", "d200")}
BATCHES = {"reference": (4_000, 1_000, 2_000), "mini": (1_000,)}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
DATASETS = {"reference": "text8", "mini": "text8-mini"}
LOADERS: Sequence[str] = ("native",)
SCENARIOS: Sequence[str] = ("offline", "single_stream")  # its gradient exists only within the update
RECIPE_BATCH: int | None = None

LINE = 1_000  # words of a line; no window crosses its end (as in ``word2vec.c``)
MIN_COUNT = 5
NEIGHBOURS = 10  # words that a query returns
QUESTION_WORDS = 30_000  # analogies are evaluated over the most frequent words
SATURATION = 6  # beyond a score of +-6 the error is 0 or 1: the end of the table in ``word2vec.c``

# Width of a row, negatives of a centre: d200 as in TensorFlow's word2vec_optimized.py, d100 is lighter.
_WIDTHS = {"d200": (200, 25), "d100": (100, 5)}
_WINDOW = 5
# Words that occur at least MIN_COUNT times, and the expected share of the corpus that sub-sampling keeps. The
# numbers of text8 are from other publications; the first fetch has to confirm them.
_VOCABULARY = {"reference": 71_290, "mini": 1_300}
_KEPT = {"reference": 0.748, "mini": 0.776}


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes: rows and width of both tables, most words on either side of a centre, negatives of a centre."""

    vocabulary: int
    width: int
    window: int
    negatives: int

    @property
    def span(self) -> int:
        """Positions of a window, including the centre, which is never its own context."""
        return 2 * self.window + 1

    @property
    def targets(self) -> int:
        """Rows that each context is compared with: the centre and its negatives."""
        return 1 + self.negatives


def dimensions(scale: str, variant: str) -> Dimensions:
    """Sizes at ``scale``: those of text8, or of the generated mini text."""
    if variant not in VARIANTS.get(scale, ()):
        raise ValueError(
            f"word2vec: expected one of {dict(VARIANTS)}, found scale {scale!r}, variant {variant!r}"
        )
    width, negatives = _WIDTHS[variant]
    return Dimensions(_VOCABULARY[scale], width, _WINDOW, negatives)


def hyperparameters(scale: str, variant: str) -> dict[str, str]:
    """The recipe of ``word2vec_optimized.py``; the mini text is 84 times shorter.

    The rate falls linearly over ``decay_words`` (15 epochs) to the fraction ``final_rate`` of its start.
    """
    dimensions(scale, variant)
    changed = {"reference": {}, "mini": {"decay_words": "3000000"}}[scale]
    return {
        "rate": "0.025",
        "final_rate": "1e-4",
        "decay_words": "250770000",
        "sample": "1e-3",
        "row_pairs": "32",
        "rate_drops": "",
    } | changed


def recipe_rate(hyper: Mapping[str, str], step: int, words: int = LINE) -> float:
    """The rate of step ``step``, with ``words`` words per step, times ``rate_drops`` ("step:factor")."""
    done = step * words / float(hyper["decay_words"])
    rate = float(hyper["rate"]) * max(float(hyper["final_rate"]), 1 - done)
    return after_drops(rate, hyper["rate_drops"], step)


def learning_rate(job: Job, step: int, steps_per_epoch: int) -> float:
    """See :class:`suite.contract.Specification`: the rate falls with the words read, at every batch alike."""
    del steps_per_epoch
    return recipe_rate(job.hyper, step, job.key.batch * job.key.devices)


def parameters(dims: Dimensions) -> tuple[Parameter, ...]:
    """``input``, the words as contexts, initially U(+-0.5 / width), and ``output``, as centres, zero."""
    shape = (dims.vocabulary, dims.width)
    return (
        Parameter("input", shape, "uniform", repr(0.5 / dims.width)),
        Parameter("output", shape, "constant", "0"),
    )


def capacity(batch: int) -> int:
    """Most words of ``batch`` that a step keeps after sub-sampling: the static length of its arrays.

    Sub-sampling keeps about three quarters; the rare surplus of a step is dropped.
    """
    return -(-batch * 7 // 8)


def units(key: Key, seed: int) -> tuple[int, ...]:
    """Words before sub-sampling, or queries, of each of the 110 steps, over all devices, for any seed."""
    del seed
    return (key.batch * key.devices,) * STEPS


def expected_pairs(key: Key) -> int:
    """Expected number of pairs of a step: a kept word has window + 1 contexts on average, edges ignored."""
    dims = dimensions(key.scale, key.variant)
    return round(key.batch * key.devices * _KEPT[key.scale] * (dims.window + 1))


def window_flop(key: Key) -> int:
    """Floating-point operations of the products in the 100 measured steps; 1 MAC = 2.

    Training computes the score, the context's gradient and the target's gradient, a row each, for every
    target of every expected pair. Inference multiplies each query by every row.
    """
    dims = dimensions(key.scale, key.variant)
    if key.phase == "train":
        return 6 * dims.width * dims.targets * expected_pairs(key) * MEASURED_STEPS
    return 2 * dims.width * dims.vocabulary * key.batch * key.devices * MEASURED_STEPS


def window_bytes(key: Key) -> int:
    """Bytes that the 100 measured steps must move at least; the tables may stay on the chip (28 MB in bf16).

    A training step reads the ids of the kept words and their targets. An inference step moves queries and
    answers; the table is read once in the window.
    """
    dims = dimensions(key.scale, key.variant)
    if key.phase == "train":
        return int(4 * key.batch * _KEPT[key.scale]) * (1 + dims.targets) * key.devices * MEASURED_STEPS
    width = 2 if key.precision in ("bf16", "fp16") else 4
    queries = 4 * key.batch * (1 + 2 * NEIGHBOURS) * MEASURED_STEPS
    return (queries + width * dims.vocabulary * dims.width) * key.devices
