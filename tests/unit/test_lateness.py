"""Which rank is named as slow: recorded and made-up arrivals at the exchange."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from suite.checker import check_result
from suite.compare.result_row import row_of
from suite.log.lateness import Lateness, lateness_of, repeat_lateness
from suite.log.model import Event
from suite.metrics.slow_rank import slow_rank_text
from tests.fixtures.forged_ranks import TWO, TWO_GPUS, slow_rank
from tests.fixtures.forging import rewrite
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import write_good

STEP_NS, STEPS = 5_000_000, 100


def arrivals(
    seed: int, ranks: int = 2, slow: float = 0.0, noise: float = 0.05, slow_share: float = 1.0
) -> list[list[int]]:
    """Arrivals of ``ranks`` that wait for each other; the last one computes ``1 + slow`` times as long.

    It does so in ``slow_share`` of the steps. Each computation is prolonged by up to ``noise`` of a step.
    """
    draw, moment, found = random.Random(seed), 0, []
    for _ in range(STEPS):
        late = [draw.random() * noise for _ in range(ranks)]
        late[-1] += slow if draw.random() < slow_share else 0.0
        times = [moment + round(STEP_NS * (1 + extra)) for extra in late]
        found.append(times)
        moment = max(times) + 200_000
    return [list(column) for column in zip(*found, strict=True)]


def named(found: Lateness) -> int | None:
    return found.slow_rank(0.9, 0.01)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_slow_rank_is_named_and_equal_ones_are_not(ranks: int) -> None:
    slow = [named(lateness_of(arrivals(seed, ranks, 0.3))) for seed in range(20)]
    assert slow == [ranks - 1] * 20
    assert [named(lateness_of(arrivals(seed, ranks))) for seed in range(30)] == [None] * 30


def test_lateness_is_that_against_the_median_of_the_others() -> None:
    made = [[number * 1_000 for number in range(1, 6)] for _ in range(5)]
    made[3] = [time + 40 for time in made[3]]
    made[1] = [time + 10 for time in made[1]]
    assert lateness_of(made) == Lateness(3, 1.0, 40.0, 40.0, 1_000.0, 0)
    assert named(lateness_of(made)) == 3
    assert named(lateness_of(made, bound_ns=40)) is None  # the clocks may differ by as much
    assert named(lateness_of(made, bound_ns=None)) is None


def test_rank_late_by_less_than_a_hundredth_of_a_step_is_not_named() -> None:
    steps = list(accumulate([STEP_NS] * STEPS))
    for late, wanted in ((STEP_NS // 100, None), (STEP_NS // 50, 0)):
        assert named(lateness_of([[time + late for time in steps], steps])) == wanted


def test_rank_that_is_slow_in_a_part_of_the_steps_is_not_named() -> None:
    found = lateness_of(arrivals(0, slow=0.5, noise=0.01, slow_share=0.7))
    assert (found.rank, named(found)) == (1, None)
    assert found.spread_of_step > 0.01


def test_one_rank_or_one_step_is_refused() -> None:
    for few in ([[1, 2, 3]], [[1], [2]]):
        with pytest.raises(ValueError, match="two or more ranks with two or more steps"):
            lateness_of(few)


def test_log_of_two_ranks_names_the_slow_one(tmp_path: Path) -> None:
    folder = write_good(tmp_path, TWO_GPUS)
    honest = check_result(folder, rules_of).record
    assert honest is not None
    assert slow_rank_text(honest).startswith("the last one at the exchange is 0.")
    rewrite(folder, slow_rank)
    verdict = check_result(folder, rules_of)
    assert verdict.record is not None
    text = slow_rank_text(verdict.record)
    assert text.startswith(
        "rank 1 was slow in 3 of 5 repeats: last at the exchange in 100 % of the steps, 2 %"
    )
    (finding,) = verdict.flags
    assert finding.rule == "RANK-020"
    assert finding.location == "repeats 1, 3, 4, rank 1, exchange_ns"


def test_summary_names_the_slow_rank(tmp_path: Path) -> None:
    folder = write_good(tmp_path, TWO)
    assert row_of(folder).ranks.startswith("the last one at the exchange is 0.")
    rewrite(folder, slow_rank)
    assert row_of(folder).ranks.startswith("rank 1 was slow in 3 of 5 repeats")


def test_another_rank_that_is_last_each_time_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = check_result(write_good(tmp_path, TWO_GPUS), rules_of).record
    assert record is not None
    monkeypatch.setattr(
        "suite.metrics.slow_rank.repeat_lateness", lambda _: Lateness(0, 0.5, 0.0, 43.0, 1_000.0, 0)
    )
    text = (
        "another rank is last at the exchange each time, 4.3 % of a step behind: input, or noise of the host"
    )
    assert slow_rank_text(record) == text


def test_clocks_of_different_nodes_name_no_rank_without_a_bound(tmp_path: Path) -> None:
    record = check_result(rewrite(write_good(tmp_path, TWO_GPUS), slow_rank), rules_of).record
    assert record is not None
    repeat = record.repeats[1]
    assert repeat.reports[1]["node"] == 0
    assert named(repeat_lateness(repeat) or pytest.fail("no lateness")) == 1
    apart = replace(repeat, events=tuple(_on_its_own_node(event) for event in repeat.events))
    unknown = repeat_lateness(apart)
    assert unknown is not None
    assert named(unknown) is None
    clock = next(event for event in repeat.clocks if event["at"] == "window_open")
    there = replace(clock, data={**clock.data, "node": 1, "origin": [5, 0], "bound_ns": 1_000})
    known = repeat_lateness(replace(apart, events=(*apart.events, there)))
    assert known is not None
    assert named(known) == 1


def _on_its_own_node(event: Event) -> Event:
    if event.kind != "rank_end" or event["rank"] == 0:
        return event
    return replace(event, data={**event.data, "node": 1})
