"""How far apart the ranks of a repeat reach the exchange of gradients, and whether one rank is slow.

After an exchange all ranks continue together. A rank is late in a step by its arrival less the median of the
arrivals of the others: with two ranks, of the other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from suite.log.model import Event, Repeat
from suite.log.statistics import median


@dataclass(frozen=True, slots=True)
class Lateness:
    """The arrivals of all ranks in the steps of a window."""

    rank: int  # the rank that is last in most steps
    last_share: float  # the share of the steps in which it is last
    late_ns: float  # the median of its lateness over all steps
    spread_ns: float  # the median lateness of the last rank of each step, whichever it is
    step_ns: float  # the median time from one exchange to the next
    bound_ns: int | None  # of the error of a difference between the clocks of two ranks; None: unknown

    @property
    def late_of_step(self) -> float:
        """``late_ns`` as a share of a step."""
        return self.late_ns / max(self.step_ns, 1.0)

    @property
    def spread_of_step(self) -> float:
        """``spread_ns`` as a share of a step."""
        return self.spread_ns / max(self.step_ns, 1.0)

    def slow_rank(self, share: float, lateness: float) -> int | None:
        """The rank that is last in more than ``share`` of the steps, by more than ``lateness`` of a step.

        None if there is none, or if the clocks of the ranks could differ by as much.
        """
        known = self.bound_ns is not None and self.late_ns > self.bound_ns
        return self.rank if known and self.last_share > share and self.late_of_step > lateness else None


def lateness_of(arrivals: Sequence[Sequence[int]], bound_ns: int | None = 0) -> Lateness:
    """The lateness of at least two ranks; ``arrivals`` are, for each rank, one time per step in ns.

    All times are on one clock, up to ``bound_ns``. Raises ValueError on fewer than two ranks or steps.
    """
    if len(arrivals) < 2 or min(map(len, arrivals)) < 2:
        raise ValueError(f"expected two or more ranks with two or more steps, found {len(arrivals)} ranks")
    steps = list(zip(*arrivals, strict=True))
    last = [max(range(len(times)), key=times.__getitem__) for times in steps]
    ((rank, count),) = Counter(last).most_common(1)
    ends = [max(times) for times in steps]
    return Lateness(
        rank,
        count / len(steps),
        median([_late(times, rank) for times in steps]),
        median([_late(times, at) for times, at in zip(steps, last, strict=True)]),
        median([after - before for before, after in pairwise(ends)]),
        bound_ns,
    )


def _late(times: Sequence[int], rank: int) -> float:
    return times[rank] - median([*times[:rank], *times[rank + 1 :]])


def repeat_lateness(repeat: Repeat) -> Lateness | None:
    """The lateness of the ranks of a completed repeat; None where the arrivals are not known."""
    opened = {report["rank"]: report["window"]["open_ns"] for report in repeat.reports}
    arrivals = []
    for rank in repeat.ranks:
        times = [step.data["exchange_ns"] for step in repeat.steps_of(rank, "measured")]
        if rank not in opened or len(times) < 2 or None in times:
            return None
        arrivals.append([opened[rank] + time for time in times])
    if len(arrivals) < 2 or len(set(map(len, arrivals))) > 1:
        return None
    return lateness_of(arrivals, clocks_error_ns(repeat))


def slow_repeats(repeats: Iterable[Repeat], share: float, lateness: float) -> dict[int, dict[int, Lateness]]:
    """The slow ranks of some repeats: rank -> number of the repeat -> lateness; see ``slow_rank``."""
    found: dict[int, dict[int, Lateness]] = {}
    for repeat in repeats:
        one = repeat_lateness(repeat)
        if one is not None and (rank := one.slow_rank(share, lateness)) is not None:
            found.setdefault(rank, {})[repeat.index] = one
    return dict(sorted(found.items()))


def arrival_error_ns(report: Event) -> int:
    """The largest error of a rank's arrivals on its host's clock; 0 where no clock is stated."""
    return int(report.data.get("exchange_clock", {}).get("bound_ns", 0))


def arrivals_error_ns(reports: Sequence[Event]) -> int:
    """The largest error of a difference between the arrivals of two ranks of one host."""
    return sum(sorted(map(arrival_error_ns, reports))[-2:])


def clocks_error_ns(repeat: Repeat) -> int | None:
    """The same for ranks of any two nodes; None if the error of a node's clock is unknown."""
    nodes = [repeat.clock_error_ns(node) for node in {report["node"] for report in repeat.reports}]
    known = [error for error in nodes if error is not None]
    return sum(sorted(known)[-2:]) + arrivals_error_ns(repeat.reports) if len(known) == len(nodes) else None
