"""Naive framework code differs from the formulas in numpy, and the suite's code does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.equivalence import compare, naive_ways, optimisers
from tests.equivalence.interpreters import arrays_of
from tests.equivalence.naive_ways import BATCH, DECAY, HIDDEN, NETWORKS, RATE, STEPS, TIME, TRAPS
from tests.equivalence.test_layer_traps import expected as layers_of

Array = NDArray[Any]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Both ways by framework, each run once."""
    return arrays_of("tests.equivalence.naive_ways", tmp_path_factory.mktemp("naive"))


def padding(name: str) -> Array:
    weights = {"c.weight": naive_ways.kernel(), "c.bias": np.zeros(4)}
    return layers_of(NETWORKS[name], naive_ways.image(), weights)


def adam() -> Array:
    """Kingma and Ba, epsilon added after the bias correction."""
    weight, mean, square = optimisers.start(), np.zeros((4, 3)), np.zeros((4, 3))
    for step in range(STEPS):
        g, t = optimisers.gradient(step), step + 1
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        root = np.sqrt(square / (1 - 0.999**t)) + 1e-8
        weight = weight - optimisers.rate(step) * mean / (1 - 0.9**t) / root
    return weight


def momentum(decay: float = 0.0) -> Array:
    """``v = 0.9 v + g + decay w; w -= rate v``: no rate in the velocity, but the decay."""
    weight, velocity = optimisers.start(), np.zeros((4, 3))
    for step in range(STEPS):
        velocity = 0.9 * velocity + naive_ways.gradient("momentum", step) + decay * weight
        weight = weight - naive_ways.rate(step, decay) * velocity
    return weight


def lstm_loss(bias: Array) -> float:
    """The sum of outputs times slopes; gates i, f, g, o."""
    inputs, slopes, into, across = naive_ways.recurrent()
    hidden, cell, total = np.zeros((BATCH, HIDDEN)), np.zeros((BATCH, HIDDEN)), 0.0
    for step in range(TIME):
        sums = np.split(inputs[step] @ into.T + hidden @ across.T + bias, 4, axis=1)
        enter, forget, leave = (1 / (1 + np.exp(-sums[at])) for at in (0, 1, 3))
        cell = forget * cell + enter * np.tanh(sums[2])
        hidden = leave * np.tanh(cell)
        total += float((hidden * slopes[step]).sum())
    return total


def bias() -> Array:
    """The one bias after one step of descent from zero, by differences of the loss."""
    small = 1e-5 * np.eye(4 * HIDDEN)
    return -RATE * np.array([(lstm_loss(one) - lstm_loss(-one)) / 2e-5 for one in small])


def statistics() -> Array:
    """Mean and biased variance, a tenth of the batch's on nine tenths of 0 and 1."""
    seen = naive_ways.batch()
    return np.stack((0.1 * seen.mean(axis=(0, 2, 3)), 0.9 + 0.1 * seen.var(axis=(0, 2, 3))))


def far_variance() -> Array:
    """The biased variance of each channel."""
    return naive_ways.far_batch().astype(np.float64).var(axis=(0, 2, 3))


# trap: expected result, initial value (the test compares the changes)
EXPECTED: dict[str, tuple[Callable[[], Array], Array]] = {
    "same padding": (lambda: padding("same padding"), np.zeros(())),
    "average at the edge": (lambda: padding("average at the edge"), np.zeros(())),
    "epsilon of Adam": (adam, optimisers.start()),
    "momentum after a rate drop": (momentum, optimisers.start()),
    "decoupled weight decay": (lambda: momentum(DECAY), optimisers.start()),
    "biases of an LSTM": (bias, np.zeros(())),
    "running statistics": (statistics, np.array([[0.0], [1.0]])),
    "variance far from zero": (far_variance, np.zeros(())),
}
ROUNDING = 1e-5  # of float32, in which the optimisers run


@pytest.mark.parametrize(("framework", "trap"), [(f, trap) for f in TRAPS for trap in TRAPS[f]])
def test_suite_computes_as_specified_and_naive_code_does_not(
    computed: Any, framework: str, trap: str
) -> None:
    found, (formula, begin) = computed(framework), EXPECTED[trap]
    wanted = formula() - begin
    naive, ours = (found[f"{way}/{trap}"] - begin for way in ("naive", "ours"))
    assert compare.in_norm(ours, wanted) < ROUNDING
    assert compare.in_norm(naive, wanted) > 100 * ROUNDING


def test_reading_gradients_changes_no_statistics_in_mxnet(computed: Any) -> None:
    before, looked, moved = computed("mxnet")["looked"]
    np.testing.assert_array_equal(looked, before)
    assert compare.in_norm(moved, before) > 1e-2  # the trap is there: a backward pass alone moves them


@pytest.mark.parametrize("framework", ["pytorch", "mxnet"])
def test_norm_of_large_gradient_keeps_precision(computed: Any, framework: str) -> None:
    """Clipping divides every gradient by it; one sum over millions of squares loses digits."""
    naive, ours, exact = computed(framework)["norms"]
    assert abs(ours / exact - 1) < 1e-6
    assert abs(naive / exact - 1) > 5e-6  # how much is lost depends on the BLAS that adds up
