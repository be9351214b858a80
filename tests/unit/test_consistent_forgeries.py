"""Logs that were forged consistently: how many are found beside the reference results, by factor and idea."""

from __future__ import annotations

import pytest

from tests.fixtures.consistent_rows import (
    AUTHORS,
    CORPUS,
    EDIT,
    FACTORS,
    NAMING,
    NONE,
    SAME,
    THREATS,
    Found,
    judged,
    outcomes,
    page,
    summary,
    table,
)
from tests.fixtures.gaming_table import PATH


@pytest.fixture(scope="module")
def found() -> list[Found]:
    """What is found in each forgery."""
    return list(outcomes())


def share(some: list[Found]) -> float:
    return sum(bool(one.naming) for one in some) / len(some)


def test_known_rules_find_the_forgeries_of_all_authors(found: list[Found]) -> None:
    assert len(found) == len(CORPUS) * len(FACTORS)
    for by in AUTHORS:
        assert sum(one.row.by == by for one in found) >= 30
    assert {rule for one in found for rule in one.rules} <= NAMING | EDIT


@pytest.mark.parametrize("by", AUTHORS)
@pytest.mark.parametrize("factor", FACTORS)
def test_four_of_five_forgeries_of_keys_with_a_reference_are_found(
    found: list[Found], by: str, factor: float
) -> None:
    of_key = [one for one in found if one.reference == SAME and one.row.by == by]
    assert share([one for one in of_key if one.factor == factor]) >= 0.8


# No reference result has a time to quality.
@pytest.mark.parametrize("idea", sorted({row.idea for row in CORPUS} - {"target reached earlier"}))
def test_half_of_the_forgeries_of_each_idea_are_found(found: list[Found], idea: str) -> None:
    assert share([one for one in found if one.row.idea == idea and one.reference != NONE]) >= 0.5


@pytest.mark.parametrize("name", ["the LSTM in JAX, noise drawn anew", "batch 512 as 64", "pytorch as jax"])
def test_same_edit_with_an_honest_claim_is_not_found(name: str) -> None:
    """Otherwise the rules would find how these logs were made, and not what they claim."""
    row = next(row for row in CORPUS if row.name == name)
    assert not judged(row, 1.0).naming


def test_numbers_on_the_pages_are_current(found: list[Found]) -> None:
    for path, new in ((PATH, table(found)), (THREATS, summary(found))):
        old = path.read_text()
        assert page(old, new) == old, f"{path.name}: python -m tests.fixtures.consistent_rows writes it again"
