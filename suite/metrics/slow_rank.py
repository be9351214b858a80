"""Which rank of a run is slow, as text."""

from __future__ import annotations

from suite.log.lateness import repeat_lateness, slow_repeats
from suite.log.model import Record
from suite.log.statistics import median
from suite.log.units import count
from suite.rules import LATEST, load


def slow_rank_text(record: Record) -> str:
    """Which rank is slow, or that the last rank changes, or how close the ranks are; over all repeats.

    Empty where no ranks exchange gradients, and in quality runs, which log no steps.
    """
    if not record.computes or not record.key.exchanges or record.mode == "quality":
        return ""
    done = [repeat for repeat in record.repeats if repeat.end is not None]
    known = [one for one in map(repeat_lateness, done) if one is not None]
    if not known:
        return "unknown when each rank reaches the exchange"
    rules = load(LATEST)
    share, least = rules.limit("slow_rank_share"), rules.limit("slow_rank_lateness")
    texts = []
    for rank, repeats in slow_repeats(done, share, least).items():
        last = 100 * median([one.last_share for one in repeats.values()])
        late = 100 * median([one.late_of_step for one in repeats.values()])
        texts.append(
            f"rank {rank} was slow in {len(repeats)} of {count(len(known), 'repeat')}: "
            f"last at the exchange in {last:.0f} % of the steps, {late:.2g} % of a step behind"
        )
    if texts:
        return "; ".join(texts)
    apart = median([one.spread_of_step for one in known])
    behind = f"{100 * apart:.2g} % of a step behind"
    if apart > least:
        return f"another rank is last at the exchange each time, {behind}: input, or noise of the host"
    return f"the last one at the exchange is {behind}"
