"""The order of a sweep: random, so that a drifting machine favours no value of an axis.

A reference cell is measured before the first cell, after every ten and after the last: its throughputs show
how much the machine drifted. Its first measurement is its result.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

REFERENCE_EVERY = 10  # cells


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a sweep: the index of its cell, and the number of a measurement of the reference cell."""

    cell: int
    reference: int | None = None


def steps_of(
    runnable: Sequence[int], left: Collection[int], measured: Collection[int], seed: int
) -> tuple[Step, ...]:
    """The runs that are left of a sweep, in their order.

    ``runnable`` are the indices of all cells that the sweep can run, the reference cell first; ``left`` those
    without a result, and ``measured`` the numbers of the measurements of the reference cell that are done.
    The order depends on ``runnable`` and ``seed`` alone: a continued sweep keeps it.
    """
    if not runnable:
        return ()
    reference, *others = runnable
    random.Random(seed).shuffle(others)
    blocks = [others[at : at + REFERENCE_EVERY] for at in range(0, len(others), REFERENCE_EVERY)] or [[]]
    steps: list[Step] = []
    missing = reference in left
    for number, block in enumerate(blocks):
        todo = [Step(index) for index in block if index in left]
        if number not in measured and (todo or (number == 0 and missing)):
            steps.append(Step(reference, number))
        steps += todo
    end = len(blocks)
    if len(others) >= REFERENCE_EVERY and end not in measured and (steps or measured):
        steps.append(Step(reference, end))
    if missing and not any(step.reference is not None for step in steps):
        steps.insert(0, Step(reference))
    return tuple(steps)
