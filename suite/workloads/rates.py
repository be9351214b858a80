"""Drops of the learning rate, shared by all recipes. Standard library only."""

from __future__ import annotations


def after_drops(rate: float, drops: str, step: int) -> float:
    """``rate`` times the factor of each in ``drops`` ("step:factor step:factor") that ``step`` reached."""
    for drop in drops.split():
        at, factor = drop.split(":")
        if step >= int(at):
            rate *= float(factor)
    return rate
