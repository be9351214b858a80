"""Dynamic loss scaling: non-finite steps change nothing, in every optimiser and framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from suite.contract.traits import traits_of
from tests.equivalence import loss_scaling as made
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import arrays_of

FP16 = [name for name in FRAMEWORKS if "fp16" in traits_of(name).precisions["cuda"]]
# Halved by steps 1, 2 and 6; doubled by the third good step in a row, 5.
SCALES = [1024, 512, 256, 256, 256, 512, 256, 256, 256]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    return arrays_of("tests.equivalence.loss_scaling", tmp_path_factory.mktemp("loss_scaling"))


@pytest.mark.parametrize("framework", FP16)
@pytest.mark.parametrize("name", made.OPTIMISERS)
def test_non_finite_step_is_skipped(
    name: str, framework: str, found: Callable[[str], dict[str, Any]]
) -> None:
    here = {key.removeprefix(f"{name}/"): value for key, value in found(framework).items()}
    assert here["scale"].tolist() == SCALES
    assert here["skipped"].tolist() == [len(made.BAD)]
    assert here["reset"].tolist() == [made.INITIAL, 0]
    for at, first in enumerate(made.initial()):
        for step in range(made.STEPS):
            before = here[str(at)][step - 1] if step else first
            assert np.isfinite(here[str(at)][step]).all()
            assert (here[str(at)][step] == before).all() == (step in made.BAD), (at, step)


@pytest.mark.parametrize("name", made.OPTIMISERS)
def test_loss_scaling_equals_gradscaler(name: str, found: Callable[[str], dict[str, Any]]) -> None:
    here = {key.removeprefix(f"{name}/"): value for key, value in found("pytorch").items()}
    assert here["scale"].tolist() == here["reference/scale"].tolist()
    for at in ("0", "1"):
        np.testing.assert_allclose(here[at], here[f"reference/{at}"], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", made.OPTIMISERS)
def test_frameworks_agree(name: str, found: Callable[[str], dict[str, Any]]) -> None:
    first, *others = (found(framework) for framework in FP16)
    for other in others:
        for at in ("0", "1"):
            np.testing.assert_allclose(first[f"{name}/{at}"], other[f"{name}/{at}"], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("framework", FP16)
def test_pair_in_fp16_finds_scale_and_learns(framework: str, found: Callable[[str], dict[str, Any]]) -> None:
    here = found(framework)
    scale, skipped = here["pair/after"].tolist()
    losses = here["pair/losses"]
    assert np.isfinite(losses).all()
    assert 0 < skipped < made.PAIR_STEPS - 10
    assert scale == made.HUGE / 2**skipped
    first = int(skipped)
    assert np.ptp(losses[:first]) == 0, "a skipped step has changed the weights"
    assert losses[-1] < losses[first] - 1e-3
    assert here["pair/reset"].tolist() == [made.HUGE, 0]
