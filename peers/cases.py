"""Which plain script is compared with which pair, and at what size. Standard library only.

Sizes are the published ones, with a batch that suits two cores: a mini model exists in the suite only.
"""

from __future__ import annotations

from dataclasses import dataclass

from suite.contract import Key
from suite.workloads import specification

OURS, THEIRS = SIDES = ("ours", "theirs")
PHASES = ("train", "infer")
GENSIM = "gensim"

# Batch per step at reference scale on two cores.
BATCHES = {
    "alexnet": 32,
    "googlenet": 8,
    "inception_v3": 4,
    "resnet50": 8,
    "resnet152": 4,
    "vgg16": 4,
    "resnet50_cifar10": 32,
    "inception_bn_small": 32,
    "faster_rcnn": 1,
    "gnmt": 8,
    "lstm_ptb": 20,
    "ncf": 4096,
    "word2vec": 1000,
}

# Models whose plain scripts take the sizes from the specification, so that they can compute the mini model.
HAS_MINI_PEER = ("faster_rcnn", "gnmt", "lstm_ptb", "ncf", "word2vec")

_IMAGES = ("alexnet", "googlenet", "inception_v3", "resnet50", "resnet152", "vgg16")
_MODULES = {
    "pytorch": {
        **dict.fromkeys((*_IMAGES, "resnet50_cifar10", "inception_bn_small"), "pytorch_images"),
        "gnmt": "gnmt_plain",
        "lstm_ptb": "pytorch_lstm",
        "ncf": "ncf_plain",
        "word2vec": "pytorch_word2vec",
    },
    "tensorflow": {
        **dict.fromkeys(("alexnet", "inception_v3", "resnet50", "resnet152", "vgg16"), "tensorflow_images"),
        "resnet50_cifar10": "tensorflow_images",
        "lstm_ptb": "tensorflow_lstm",
        "ncf": "tensorflow_ncf",
    },
    "mxnet": {
        **dict.fromkeys(("alexnet", "inception_v3", "resnet50", "resnet152", "vgg16"), "mxnet_images"),
        "resnet50_cifar10": "mxnet_images",
        "lstm_ptb": "mxnet_lstm",
        "ncf": "mxnet_ncf",
    },
    "jax": {
        **dict.fromkeys((*_IMAGES, "resnet50_cifar10", "inception_bn_small"), "jax_images"),
        "faster_rcnn": "jax_detection",
        "gnmt": "jax_gnmt",
        "lstm_ptb": "jax_lstm",
        "ncf": "jax_ncf",
        "word2vec": "jax_word2vec",
    },
}
FRAMEWORKS = tuple(_MODULES)


@dataclass(frozen=True, slots=True)
class PeerCase:
    """One comparison. ``framework`` is the suite's; the other side is ``peer``."""

    workload: str
    framework: str
    phase: str
    precision: str
    scale: str
    variant: str
    batch: int
    peer: str  # a module of this package, or gensim

    @property
    def reads_text(self) -> bool:
        """Whether both sides train on a text file, as gensim does."""
        return self.peer == GENSIM and self.phase == "train"

    @property
    def has_equal_steps(self) -> bool:
        """Whether every step has the same number of units: false where lengths vary."""
        how = (self.phase, "offline", self.precision, self.batch, 1, self.scale, "synthetic", "warm")
        key = Key(self.workload, self.framework, *how, self.variant)
        return len(set(specification(self.workload).units(key, 1))) == 1


def module_of(workload: str, framework: str) -> str:
    """The module with the plain script; KeyError if there is none."""
    return f"peers.{_MODULES[framework][workload]}"


def peers_of(workload: str, framework: str) -> tuple[str, ...]:
    """The names of the peers of a pair."""
    module = _MODULES.get(framework, {}).get(workload)
    plain = () if module is None else (module,)
    return (*plain, GENSIM) if workload == "word2vec" else plain
