"""What the learning rates of several recipes share: standard library only."""

from __future__ import annotations


def after_drops(rate: float, drops: str, step: int) -> float:
    """``rate`` times the factor of each drop ("step:factor", space between) that ``step`` has reached."""
    for drop in drops.split():
        at, factor = drop.split(":")
        if step >= int(at):
            rate *= float(factor)
    return rate
