"""GNMT: sizes, parameters, hyperparameters, units of work and analytic cost. Standard library only.

The model is the MLPerf v0.7 reference (``retired_benchmarks/gnmt/pytorch`` of mlcommons/training) and its
twin in NVIDIA DeepLearningExamples: a 4-layer encoder whose first layer is bidirectional, a 4-layer decoder,
normalised Bahdanau attention computed for all target positions at once, one shared embedding, an untied
classifier. An LSTM has one trainable bias here (160,634,433 parameters); the published model trains two
(160,671,297).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.contract import MEASURED_STEPS, WARMUP_STEPS, Job, Key, Parameter, order
from suite.workloads.gnmt import pinned
from suite.workloads.rates import after_drops

NAME = "gnmt"
FAMILY = ""
UNIT = "token"
METRIC = "bleu"
VARIANTS: Mapping[str, Sequence[str]] = {"reference": ("v2",), "mini": ("v2",)}
BATCHES: Mapping[str, Sequence[int]] = {
    "reference": (128, 1, 64, 256, 512, 1024, 2048, 3040),
    "mini": (32, 1, 64, 128),
}
PRECISIONS: Sequence[str] = ("fp32", "tf32", "bf16", "fp16")
DATASETS: Mapping[str, str] = {"reference": "wmt16", "mini": "wmt16-mini"}
LOADERS: Sequence[str] = ("native",)
SCENARIOS: Sequence[str] = ("offline", "single_stream", "forward_backward")
RECIPE_BATCH: int | None = None

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = 4  # number of special ids, and the id of the vocabulary file's first word
BUCKETS = 5
PUBLISHED_PARAMETERS = 160_671_297  # with a second, redundant bias in each of the nine LSTMs

# Lengths (source, target) of synthetic sentence pairs, BOS and EOS counted. Sentence j of a bucket's batch
# has the lengths of pair j modulo the length of the list; the longer side decides the bucket. The lengths fit
# the tokens per pair in NVIDIA's MLPerf v0.5 logs (limit 50): mean 50.4, quartiles 35, 49, 65.
LENGTHS: Mapping[str, tuple[tuple[tuple[int, int], ...], ...]] = {
    "reference": (
        ((9, 8), (7, 9), (8, 7), (6, 5), (9, 9), (5, 7), (7, 6), (8, 6)),
        ((19, 17), (15, 18), (14, 12), (11, 10), (17, 15), (13, 16), (12, 10), (16, 13)),
        ((29, 25), (24, 28), (22, 19), (20, 18), (27, 24), (21, 25), (23, 17), (18, 21)),
        ((39, 35), (33, 38), (31, 27), (30, 25), (36, 32), (28, 34), (32, 26), (26, 31)),
        ((50, 45), (43, 49), (41, 36), (40, 33), (47, 42), (37, 44), (42, 34), (35, 40)),
    ),
    "mini": (
        ((3, 3),),
        ((7, 6), (5, 7), (6, 5), (4, 4)),
        ((11, 10), (9, 11), (8, 9), (10, 8)),
        ((15, 13), (12, 14), (13, 12), (11, 15)),
        ((19, 16), (16, 18), (17, 17), (15, 19)),
    ),
}
# The number of measured synthetic steps (100 in all) from each bucket.
SHARES = (3, 23, 31, 25, 18)


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of the model; ``longest`` is the length limit of training sentences, BOS and EOS counted."""

    vocabulary: int
    hidden: int
    layers: int
    longest: int


@dataclass(frozen=True, slots=True)
class Work:
    """The work in one batch: source tokens, predicted target tokens, and position pairs of attention."""

    sources: int
    targets: int
    pairs: int

    @property
    def units(self) -> int:
        """Source and predicted target tokens. BOS and EOS count (the target's BOS not), padding does not."""
        return self.sources + self.targets


def dimensions(scale: str, variant: str) -> Dimensions:
    """Sizes at ``scale``; the mini vocabulary (62 words and 4 specials) is padded to a multiple of 8."""
    if variant not in VARIANTS.get(scale, ()):
        raise ValueError(f"gnmt: expected variants {dict(VARIANTS)}, found {variant!r} at scale {scale!r}")
    if scale == "reference":
        return Dimensions(vocabulary=32_320, hidden=1024, layers=4, longest=50)
    return Dimensions(vocabulary=72, hidden=128, layers=4, longest=19)


def hyperparameters(scale: str, variant: str) -> dict[str, str]:
    """Optimiser and schedule, and the beam search of quality mode (``beam.py``).

    At reference scale those of the MLPerf reference for 128 sentences per device: the rate halves after two
    thirds of six epochs of 27,329 steps and three times more at equal intervals (DeepLearningExamples
    ``seq2seq/train/lr_scheduler.py``).
    """
    dimensions(scale, variant)
    common = {
        "beta1": "0.9",
        "beta2": "0.999",
        "epsilon": "1e-8",
        "smoothing": "0.1",
        "clip": "5.0",
        "warmup_start": "0.01",
        "loss_scale": "1024",
        "loss_growth": "2000",
        "beam": "5",
        "length_penalty": "0.6",
        "coverage_penalty": "0.1",
    }
    if scale == "reference":
        drops = "109316:0.5 122980:0.5 136644:0.5 150308:0.5"
        return {**common, "rate": "1e-3", "dropout": "0.2", "warmup_steps": "200", "rate_drops": drops}
    return {**common, "rate": "1e-2", "dropout": "0", "warmup_steps": "100", "rate_drops": ""}


def recipe_rate(hyper: Mapping[str, str], step: int) -> float:
    """The rate of step ``step``: exponential warm-up, then ``rate_drops`` ("step:factor step:factor")."""
    rate, warmup = float(hyper["rate"]), int(hyper["warmup_steps"])
    if step < warmup:
        return float(rate * float(hyper["warmup_start"]) ** ((warmup - step) / warmup))
    return after_drops(rate, hyper["rate_drops"], step)


def learning_rate(job: Job, step: int, steps_per_epoch: int) -> float:
    """See :class:`suite.contract.Specification`."""
    del steps_per_epoch
    return recipe_rate(job.hyper, step)


def lstms(dims: Dimensions) -> dict[str, int]:
    """The input width of every LSTM by name, in the order of computation."""
    wide = 2 * dims.hidden
    inputs = {"encoder.0.forward": dims.hidden, "encoder.0.backward": dims.hidden, "encoder.1": wide}
    inputs |= {f"encoder.{layer}": dims.hidden for layer in range(2, dims.layers)}
    inputs |= {"decoder.0": dims.hidden}
    return inputs | {f"decoder.{layer}": wide for layer in range(1, dims.layers)}


def parameters(dims: Dimensions) -> tuple[Parameter, ...]:
    """Canonical tensors; LSTM weights are [4 hidden, input] with gates in the order i, f, g, o."""
    hidden, vocabulary = dims.hidden, dims.vocabulary

    def uniform(name: str, *shape: int) -> Parameter:
        return Parameter(name, shape, "uniform", "0.1")

    tensors = [uniform("embedding", vocabulary, hidden)]
    for name, width in lstms(dims).items():
        tensors.append(uniform(f"{name}.input", 4 * hidden, width))
        tensors.append(uniform(f"{name}.hidden", 4 * hidden, hidden))
        tensors.append(uniform(f"{name}.bias", 4 * hidden))
    tensors += [
        uniform("attention.query", hidden, hidden),
        uniform("attention.key", hidden, hidden),
        uniform("attention.v", hidden),
        Parameter("attention.g", (1,), "constant", repr(hidden**-0.5)),
        Parameter("attention.b", (hidden,), "constant", "0"),
        uniform("classifier.weight", vocabulary, hidden),
        uniform("classifier.bias", vocabulary),
    ]
    return tuple(tensors)


def bucket_ends(longest: int) -> tuple[int, ...]:
    """The longest sentence of each bucket; the five buckets have equal widths, the last takes the rest."""
    width = (longest + BUCKETS - 1) // BUCKETS
    return (*(width * (bucket + 1) - 1 for bucket in range(BUCKETS - 1)), longest)


def bucket_of(source: int, target: int, longest: int) -> int:
    """The bucket of a sentence pair, by its longer side (MLPerf reference ``seq2seq/data/sampler.py``)."""
    width = (longest + BUCKETS - 1) // BUCKETS
    return min(BUCKETS - 1, max(source // width, target // width))


def plan(seed: int) -> tuple[int, ...]:
    """The entry of the pinned list for each of the 110 steps: warm-up fixed, the rest permuted by seed."""
    measured = order.permutation(MEASURED_STEPS, NAME, seed)
    return (*range(WARMUP_STEPS), *(WARMUP_STEPS + position for position in measured))


def synthetic_buckets() -> tuple[int, ...]:
    """The bucket of each entry of the pinned synthetic list, before the permutation."""
    warmup = [step % BUCKETS for step in range(WARMUP_STEPS)]
    return (*warmup, *(bucket for bucket, share in enumerate(SHARES) for _ in range(share)))


def synthetic_work(scale: str, bucket: int, batch: int) -> Work:
    """The work in one synthetic batch of ``bucket``."""
    lengths = LENGTHS[scale][bucket]
    rounds, rest = divmod(batch, len(lengths))

    def total(values: list[int]) -> int:
        return rounds * sum(values) + sum(values[:rest])

    sources, targets = [s for s, _ in lengths], [t - 1 for _, t in lengths]
    products = [s * t for s, t in zip(sources, targets, strict=True)]
    return Work(total(sources), total(targets), total(products))


def pinned_work(key: Key) -> tuple[Work, ...]:
    """The work in the 110 global batches of the pinned list (10 for warm-up first), before the permutation.

    ValueError where the list of the global batch is not pinned.
    """
    batch = key.batch * key.devices
    if key.data == "synthetic":
        each = [synthetic_work(key.scale, bucket, batch) for bucket in range(BUCKETS)]
        return tuple(each[bucket] for bucket in synthetic_buckets())
    name = DATASETS[key.scale]
    known = pinned.batches(name)
    if batch not in known:
        listed = ", ".join(map(str, known)) or "none"
        raise ValueError(
            f"gnmt: no pinned list of global batches of {batch} for {name} (known: {listed}); "
            "choose a known batch, or data=synthetic"
        )
    return tuple(Work(*numbers) for numbers in pinned.work(name, batch))


def units(key: Key, seed: int) -> tuple[int, ...]:
    """Source and target tokens of each of the 110 steps, over all devices."""
    work = pinned_work(key)
    return tuple(work[entry].units for entry in plan(seed))


def decoding_limit(scale: str, width: int) -> int:
    """Most tokens of a translation of sources padded to ``width`` (150, as in the reference's evaluation)."""
    return 150 if scale == "reference" else 2 * width + 10


def forward_macs(dims: Dimensions, work: Work) -> int:
    """Multiply-accumulates of a forward pass (47.19 M per source token, 80.28 M per target token)."""
    square = dims.hidden * dims.hidden
    narrow, wide = 8 * square, 12 * square  # an LSTM with inputs of width hidden, or twice hidden
    encoder = 2 * narrow + wide + (dims.layers - 2) * narrow + square
    decoder = narrow + (dims.layers - 1) * wide + square + dims.vocabulary * dims.hidden
    return work.sources * encoder + work.targets * decoder + work.pairs * 2 * dims.hidden


def window_flop(key: Key) -> int:
    """Floating-point operations of the 100 measured steps: 1 MAC = 2, the backward pass twice the forward."""
    dims = dimensions(key.scale, key.variant)
    macs = sum(forward_macs(dims, work) for work in pinned_work(key)[WARMUP_STEPS:])
    return macs * 2 * (3 if key.phase == "train" else 1)


def window_bytes(key: Key) -> int:
    """Bytes of weights and optimiser state that the 100 measured steps must move at least.

    A training step reads the weights forward and backward (in the compute type) and reads and writes master
    weights and both moments in fp32, or without update writes the gradient; an inference step reads the
    weights. Of the embedding a step reads only some rows. Activations may stay in caches.
    """
    specified = parameters(dimensions(key.scale, key.variant))
    count = sum(parameter.size for parameter in specified)
    read = sum(parameter.size for parameter in specified if parameter.name != "embedding")
    width = {"fp64": 8, "bf16": 2, "fp16": 2}.get(key.precision, 4)
    each = read * width
    if key.phase == "train":
        each = 2 * each + count * (6 * 4 if key.updates else 4)
    return each * MEASURED_STEPS * key.devices
