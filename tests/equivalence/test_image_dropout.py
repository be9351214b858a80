"""The classifiers' dropout has the same positions, rate and scaling in every framework."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.compare import NEGLIGIBLE, in_norm, total_norm
from tests.equivalence.image_dropout import WORKLOADS
from tests.equivalence.interpreters import arrays_of


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The results of each framework with the same masks, each run once."""
    return arrays_of("tests.equivalence.image_dropout", tmp_path_factory.mktemp("dropout"))


@pytest.mark.parametrize(("first", "second"), list(combinations(FRAMEWORKS, 2)))
@pytest.mark.parametrize("workload", WORKLOADS)
def test_frameworks_agree_with_given_masks(masked: Any, workload: str, first: str, second: str) -> None:
    a, b = masked(first), masked(second)
    least = NEGLIGIBLE * total_norm(a, f"{workload}/masked")
    found = {name: in_norm(a[name], b[name], least) for name in a if name.startswith(f"{workload}/masked/")}
    print(f"{workload} {first} {second}: largest {max(found.items(), key=lambda item: item[1])}")
    assert len(found) >= 16
    assert {name: value for name, value in found.items() if not value <= 1e-8} == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_random_dropout_is_active_only_in_training(masked: Any, workload: str, framework: str) -> None:
    found = {name.removeprefix(f"{workload}/"): array for name, array in masked(framework).items()}
    assert in_norm(found["last"], found["last without"]) > 1e-3
    assert in_norm(found["random"], found["last without"]) > 1e-3
    assert in_norm(found["random"], found["last"]) > 1e-3
    np.testing.assert_array_equal(found["outputs"], found["outputs without"])
    np.testing.assert_array_equal(found["evaluated"], found["evaluated without"])
