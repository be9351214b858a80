"""GNMT's dropout has the same positions, rate and scaling in every framework."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import arrays_of


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The results of each framework with the same masks, each run once."""
    return arrays_of("tests.equivalence.gnmt_dropout", tmp_path_factory.mktemp("dropout"))


@pytest.mark.parametrize(("first", "second"), list(combinations(FRAMEWORKS, 2)))
def test_frameworks_agree_with_given_masks(masked: Any, first: str, second: str) -> None:
    a, b = masked(first), masked(second)
    found = {name: in_norm(a[name], b[name]) for name in a if name.startswith("masked/")}
    print(f"{first} {second}: largest {max(found.items(), key=lambda item: item[1])}")
    assert len(found) == 35
    assert {name: value for name, value in found.items() if not value <= 1e-8} == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_random_dropout_is_active_only_in_training(masked: Any, framework: str) -> None:
    found = masked(framework)
    assert in_norm(found["masked/attention.v"], found["random"][0]) > 1e-3
    np.testing.assert_array_equal(found["outputs"], found["outputs without"])
