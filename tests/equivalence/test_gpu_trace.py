"""On a GPU the pairs of PyTorch launch the kernels that they should, with operands that these accept.

A kernel of faster_rcnn was once given an image and weights of two types, which no test without a GPU noticed.
"""

from __future__ import annotations

import json

import pytest

from tests.equivalence.interpreters import run, triton_packages

POOLS = {"_forward", "_backward"}
FIRST = {"_convolution"}  # of images
FIRST_TRAINED = FIRST | {"_products", "_gradient"}
NORMALISED = FIRST_TRAINED | {"_moments", "_deviations", "_gradients"}
RESIDUAL = NORMALISED | {"_products_of_sum"}
NONE: set[str] = set()
# In training and in inference. googlenet, inception_v3 and resnet152 consist of the layers of the others.
KERNELS = {
    "alexnet": (POOLS | FIRST_TRAINED - FIRST, NONE),  # more columns than the kernel is worth it for
    "faster_rcnn": (FIRST, FIRST),  # its first layers are not trained
    "gnmt": ({"_forward", "_backward"}, {"_forward"}),  # of attention
    "inception_bn_small": (POOLS | NORMALISED, FIRST),
    "lstm_ptb": ({"_pack", "_unpack", "forward", "backward"}, {"_pack", "forward"}),
    "ncf": ({"_forward", "_backward"}, NONE),
    "resnet50": (POOLS | RESIDUAL, FIRST),
    "resnet50_cifar10": (RESIDUAL, FIRST),
    "vgg16": (POOLS | FIRST_TRAINED, FIRST),
    "word2vec": ({"_differentiate", "_descend"}, NONE),
}


SMALLEST = 99 << 10  # bytes of shared memory of a program, of capabilities 8.6, 8.9 and 12.0


def traced(*arguments: str) -> dict[str, dict[str, int]]:
    """The kernels of each phase, with the shared memory that their programs need."""
    done = run("pytorch", "tests.equivalence.gpu_trace", *arguments, triton_packages())
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_on_a_gpu_accept_what_the_pair_gives_them(name: str) -> None:
    found = traced(name, "mini", "bf16", "9.0")
    assert (set(found["train"]), set(found["infer"])) == KERNELS[name]


@pytest.mark.parametrize("name", ["lstm_ptb", "ncf", "resnet50", "word2vec"])
def test_kernels_fit_into_the_shared_memory_of_small_gpus(name: str) -> None:
    found = traced(name, "reference", "bf16", "8.6")
    used = max(found["train"].values())
    assert 8 << 10 <= used <= SMALLEST
