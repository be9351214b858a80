"""The order of a sweep: random by its seed, with a reference cell, and kept by a continued sweep."""

from __future__ import annotations

from itertools import pairwise

import pytest

from suite.sweep.execution import announce
from suite.sweep.order import REFERENCE_EVERY, Step, steps_of

CELLS = list(range(32))


def test_every_cell_runs_once_and_the_reference_cell_after_every_ten() -> None:
    steps = steps_of(CELLS, CELLS, (), 7)
    numbers = [step.reference for step in steps]
    assert sorted(step.cell for step in steps if step.reference is None) == CELLS[1:]
    assert [number for number in numbers if number is not None] == [0, 1, 2, 3, 4]
    assert {step.cell for step in steps if step.reference is not None} == {0}
    at = [index for index, number in enumerate(numbers) if number is not None]
    assert [after - before - 1 for before, after in pairwise(at)] == [10, 10, 10, 1]
    assert REFERENCE_EVERY == 10


def test_order_is_random_and_repeatable() -> None:
    first = [step.cell for step in steps_of(CELLS, CELLS, (), 7) if step.reference is None]
    assert first != sorted(first)
    assert steps_of(CELLS, CELLS, (), 7) == steps_of(CELLS, CELLS, (), 7)
    assert steps_of(CELLS, CELLS, (), 8) != steps_of(CELLS, CELLS, (), 7)


@pytest.mark.parametrize("done", range(37))
def test_continued_sweep_runs_exactly_what_is_left(done: int) -> None:
    whole = steps_of(CELLS, CELLS, (), 7)
    assert len(whole) == 36
    before = whole[:done]
    left = set(CELLS) - {step.cell for step in before}
    measured = {step.reference for step in before if step.reference is not None}
    assert steps_of(CELLS, left, measured, 7) == whole[done:]


def test_small_sweep_measures_the_reference_cell_once() -> None:
    assert steps_of([0, 1, 2], [0, 1, 2], (), 1)[0] == Step(0, 0)
    assert len(steps_of([0, 1, 2], [0, 1, 2], (), 1)) == 3
    assert steps_of([5], [5], (), 1) == (Step(5, 0),)


def test_nothing_is_run_if_nothing_is_left() -> None:
    assert steps_of([0, 1, 2], [], (), 1) == ()
    assert steps_of([], [], (), 1) == ()


def test_reference_cell_whose_result_was_removed_is_run_again() -> None:
    assert steps_of([0, 1], [0], {0}, 1) == (Step(0),)


def test_the_number_of_runs_of_the_reference_cell_is_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for references, text in ((1, "and 1 more run of the reference cell"), (2, "and 2 more runs of the")):
        announce((), references)
        assert text in capsys.readouterr().err
