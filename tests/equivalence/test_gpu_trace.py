"""On a GPU the pairs of PyTorch launch the kernels that they should, with operands that these accept.

A kernel of faster_rcnn was once given an image and weights of two types, which no test without a GPU noticed.
"""

from __future__ import annotations

import json

import pytest

from tests.equivalence.interpreters import run, triton_packages

FIRST, NORM, POOL = "first_convolution_kernels", "normalisation_kernels", "pooling_kernels"
POOLS = {f"{POOL}._forward", f"{POOL}._backward"}
IMAGES = {f"{FIRST}._convolution"}
IMAGES_TRAINED = {f"{FIRST}._products", f"{FIRST}._gradient"}
NORMALISED = {f"{NORM}.{name}" for name in ("_moments", "_deviations", "_products", "_gradients")}
RESIDUAL = NORMALISED | {f"{NORM}._products_of_sum"}
REGIONS = {f"pytorch_kernels.{name}" for name in ("_pool", "_compare", "_decide")}
REGIONS_TRAINED = {f"pytorch_kernels.{name}" for name in ("_match", "_pool_backward")}
ATTENTION = "pytorch_attention"
LSTM, WEIGHTS = "stacked_lstm_kernels", "stacked_lstm_weights"
# In training and in inference. googlenet, inception_v3 and resnet152 consist of the layers of the others.
KERNELS: dict[str, tuple[set[str], set[str]]] = {
    "alexnet": (POOLS | IMAGES_TRAINED, set()),  # PyTorch's own convolution is as fast for its wide kernel
    # Its first layers are not trained.
    "faster_rcnn": (IMAGES | REGIONS | REGIONS_TRAINED, IMAGES | REGIONS),
    "gnmt": ({f"{ATTENTION}._forward", f"{ATTENTION}._backward"}, {f"{ATTENTION}._forward"}),
    "inception_bn_small": (POOLS | IMAGES | IMAGES_TRAINED | NORMALISED, IMAGES),
    "lstm_ptb": (
        {f"{WEIGHTS}._pack", f"{WEIGHTS}._unpack", f"{LSTM}.forward", f"{LSTM}.backward"},
        {f"{WEIGHTS}._pack", f"{LSTM}.forward"},
    ),
    "ncf": ({"pytorch_kernels._forward", "pytorch_kernels._backward"}, set()),
    "resnet50": (POOLS | IMAGES | IMAGES_TRAINED | RESIDUAL, IMAGES),
    "resnet50_cifar10": (IMAGES | IMAGES_TRAINED | RESIDUAL, IMAGES),
    "vgg16": (POOLS | IMAGES | IMAGES_TRAINED, IMAGES),
    "word2vec": ({"pytorch_kernels._differentiate", "pytorch_kernels._descend"}, set()),
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
