"""The classifiers' dropout sits in the same places, with the same rate and scaling, in every framework."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.compare import differences, excesses, in_norm
from tests.equivalence.image_dropout import WORKLOADS
from tests.equivalence.interpreters import arrays_of


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What each framework computed under the same masks, each run once."""
    return arrays_of("tests.equivalence.image_dropout", tmp_path_factory.mktemp("dropout"))


@pytest.mark.parametrize(("first", "second"), list(combinations(FRAMEWORKS, 2)))
@pytest.mark.parametrize("workload", WORKLOADS)
def test_frameworks_agree_under_masks(masked: Any, workload: str, first: str, second: str) -> None:
    of = f"{workload}/masked/"
    a, b = (
        {
            f"gradient/{name.removeprefix(of)}": array
            for name, array in masked(framework).items()
            if of in name
        }
        for framework in (first, second)
    )
    found = differences(a, b, "fp64")
    print(f"{workload} {first} {second}: largest {max(found.items(), key=lambda item: item[1])}")
    assert len(found) >= 16
    assert excesses(found, "fp64") == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_random_dropout_is_on_in_training_only(masked: Any, workload: str, framework: str) -> None:
    found = {name.removeprefix(f"{workload}/"): array for name, array in masked(framework).items()}
    assert in_norm(found["last"], found["last without"]) > 1e-3
    assert in_norm(found["random"], found["last without"]) > 1e-3
    assert in_norm(found["random"], found["last"]) > 1e-3
    np.testing.assert_array_equal(found["outputs"], found["outputs without"])
    np.testing.assert_array_equal(found["evaluated"], found["evaluated without"])
