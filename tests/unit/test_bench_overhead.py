"""The measurement of the overhead of the suite: it finds a cost that exists, and none otherwise."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from itertools import islice
from statistics import median

import pytest

from suite.cli import bench_overhead as bench
from suite.cli import main

Interval = tuple[float, float]
FAST = bench.Case("timestamps, steps of 100 µs", 100_000, 10, 1.0, 1.0)


def simulated(chance: random.Random, cost: float, count: int = 100) -> tuple[list[float], list[float]]:
    """Times of pairs whose machine wanders by 1 % and whose blocks differ by 0.5 % for no reason."""
    off = [math.exp(chance.gauss(0, 0.01)) for _ in range(count)]
    return [(1 + cost) * value * math.exp(chance.gauss(0, 0.005)) for value in off], off


@pytest.mark.parametrize("percent", [0.0, 0.2])
def test_interval_contains_the_true_cost_in_about_95_of_100_runs(percent: float) -> None:
    chance = random.Random(3)
    costs = [bench.relative_cost(*simulated(chance, percent / 100)) for _ in range(200)]
    covered = sum(cost.low < percent < cost.high for cost in costs)
    assert 180 <= covered <= 199


def test_outliers_hardly_move_the_cost_and_a_part_scales_it() -> None:
    on, off = simulated(random.Random(4), 0.002, 400)
    cost = bench.relative_cost(on, off)
    disturbed = bench.relative_cost([3 * v if i % 20 == 0 else v for i, v in enumerate(on)], off)
    assert abs(disturbed.middle - cost.middle) < 0.1
    assert bench.relative_cost(on, off, 0.1).middle == pytest.approx(cost.middle / 10)


@pytest.mark.parametrize(
    ("direct", "cpu", "wall", "quiet", "expected"),
    [
        ((0.2, 0.3), (-2.0, 3.0), (-2.0, 3.0), True, bench.MET),
        ((0.2, 0.3), (-2.0, 3.0), (-2.0, 3.0), False, bench.MET),
        ((0.2, 0.6), (0.0, 0.2), (0.0, 0.2), True, bench.UNDECIDED),
        ((0.6, 0.7), (0.0, 0.2), (0.0, 0.2), False, bench.MISSED),
        ((0.2, 0.3), (0.0, 0.2), (0.6, 9.0), True, bench.MISSED),
        ((0.2, 0.3), (0.6, 9.0), (0.0, 0.2), True, bench.MISSED),
        ((0.2, 0.3), (0.6, 9.0), (0.0, 0.2), False, bench.UNDECIDED),
    ],
)
def test_verdict_follows_from_direct_cost_unless_all_effects_refute_it(
    direct: Interval, cpu: Interval, wall: Interval, quiet: bool, expected: str
) -> None:
    of_gap, of_cpu, of_wall = (bench.Cost((low + high) / 2, low, high) for low, high in (direct, cpu, wall))
    assert bench.verdict_of(of_gap, of_cpu, of_wall, 0.5, quiet) == expected


def test_order_is_balanced_and_not_regular() -> None:
    orders = list(islice(bench.orders(), 40))
    assert sum(order[0] for order in orders) == 20
    assert all(sum(order) == 2 and order[0] == order[3] for order in orders)
    assert [order[0] for order in orders] != [index % 2 == 0 for index in range(40)]


def test_sums_by_arm_and_disturbance() -> None:
    blocks = [(500, 499), (400, 350), (600, 590), (500, 498)]
    kept, lost = bench.by_arm([True, False, False, True], blocks)
    assert (kept, lost) == ((1000, 997), (1000, 940))
    both, off, on = (bench.Observation(*times, 0.1) for times in ((kept, kept), (kept, lost), (lost, kept)))
    assert bench.undisturbed([both], telemetry=False) == [both]
    assert bench.undisturbed([off, on], telemetry=False) == []
    assert bench.undisturbed([off, on], telemetry=True) == [on]


def test_more_expensive_block_is_measured_in_real_process() -> None:
    on, off = [], []
    with bench.started() as worker:
        iterations = worker.ask(calibrate=200_000)["iterations"]
        for _ in range(60):
            on += [cpu for (_, cpu), _ in worker.blocks(["bare"], round(iterations * 1.5), 5)]
            off += [cpu for (_, cpu), _ in worker.blocks(["bare"], iterations, 5)]
    cost = bench.relative_cost(on, off)
    assert 30 < cost.middle < 70


def test_timestamps_lengthen_the_gap_between_the_work_of_steps() -> None:
    with bench.started() as worker:
        iterations = worker.ask(calibrate=20_000)["iterations"]
        gaps = [gap for _ in range(60) for _, gap in worker.blocks(["marked", "bare"], iterations, 50)]
    with_timestamps, without = median(gaps[::2]), median(gaps[1::2])
    assert 0 < without < with_timestamps < without + 20_000


def test_case_prints_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    with bench.started() as worker:
        verdict = bench.measure(worker, FAST, 1.0)
    row, sentence = capsys.readouterr().out.splitlines()
    assert verdict in {bench.MET, bench.MISSED, bench.UNDECIDED}
    assert row.startswith(FAST.name)
    assert re.fullmatch(
        rf"  {FAST.name}: directly at most [0-9.]+ % with 95% confidence; limit 1.0 %: {verdict}", sentence
    )


@pytest.mark.parametrize("closed", [True, False], ids=["before it is asked", "while it is asked"])
def test_ended_worker_is_an_error(closed: bool) -> None:
    with bench.started() as worker:
        worker._process.kill()
        if closed:
            worker._process.wait()
        with pytest.raises(RuntimeError, match="the null workload ended with status -9"):
            worker.ask(calibrate=1000)


def test_undecided_case_ends_at_its_time_limit_with_a_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine so busy that no interval is narrow: the noise of its blocks is a tenth of them."""
    chance, now = random.Random(5), [0.0]

    def noisy(worker: bench.NullWorkload, case: bench.Case) -> Iterator[bench.Observation]:
        while True:
            now[0] += 0.2
            on, off = (round(1e9 * math.exp(chance.gauss(0, 0.1))) for _ in range(2))
            yield bench.Observation((on, on), (off, off), chance.gauss(0.1, 0.5))

    monkeypatch.setattr(bench, "observe_timestamps", noisy)
    monkeypatch.setattr("suite.cli.bench_overhead.time.monotonic", lambda: now[0])
    with bench.started() as worker:
        assert bench.measure(worker, bench.CASES[0], 1.0) == bench.UNDECIDED
    assert now[0] < bench.CASES[0].seconds + 1
    bound = re.search(r"directly at most ([0-9.]+) %", capsys.readouterr().out)
    assert bound is not None
    assert 0.1 < float(bound[1]) < 5


def test_all_cases_end_within_three_minutes() -> None:
    assert sum(case.seconds for case in bench.CASES) < 160


def test_invalid_share_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench-overhead", "--share", "0"])
    assert stop.value.code == 2
    assert "expected a number above 0, found 0" in capsys.readouterr().err
