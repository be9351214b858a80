"""GNMT's beam search finds the same translations in every framework, and those of a plain search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suite.workloads.gnmt import spec
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import arrays_of


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Translations by framework."""
    return arrays_of("tests.equivalence.gnmt_beams", tmp_path_factory.mktemp("beams"))


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_beam_search_equals_plain_search(found: Any, framework: str, precision: str) -> None:
    tokens, reference = found(framework), found("pytorch")["fp64/beam"]
    np.testing.assert_array_equal(tokens[f"{precision}/beam"], tokens[f"{precision}/plain"])
    np.testing.assert_array_equal(tokens[f"{precision}/one"], tokens[f"{precision}/greedy"])
    np.testing.assert_array_equal(tokens[f"{precision}/beam"], reference)


def test_translations_distinguish_searches(found: Any) -> None:
    """The test above can fail: translations differ between sentences and from greedy ones, and some end."""
    five, one = found("pytorch")["fp64/beam"], found("pytorch")["fp64/one"]
    assert len({tuple(row) for row in five.tolist()}) > len(five) // 2
    assert (five != one).any(axis=1).sum() >= len(five) // 2
    assert (five == spec.EOS).any(axis=1).sum() >= len(five) // 3
