"""The sweep of the exchange: its sizes, its end, and the bandwidth that follows from a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from suite.checker import exchange
from suite.compare.scaling_arm import sweep_rows
from suite.log.reader import read_result
from suite.worker import exchange_sweep
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import MINI, Good, write_good


class Counting:
    """An exchange of ranks that takes no time; above ``most`` bytes a device lacks the memory."""

    active = True
    operation = "all_reduce"

    def __init__(self, most: int = 1 << 40) -> None:
        self.most = most

    def time_sums(self, count: int, iterations: int) -> tuple[list[int], bool] | None:
        if 4 * count > self.most:
            return None
        return list(range(1, iterations + 1)), True


def test_sweep_ends_at_the_largest_size() -> None:
    swept = exchange_sweep.sweep(Counting(), "cpu", bool)
    sizes = [row["bytes"] for row in swept["sizes"]]
    assert sizes == [4**power for power in range(1, 14)]
    assert sizes[-1] == 64 << 20
    assert swept["ended"] == "largest"
    assert swept["sizes"][0]["times_ns"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["SMALLEST", "GROWTH", "ITERATIONS", "LARGEST"])
def test_checker_expects_the_sizes_of_the_worker(name: str) -> None:
    assert getattr(exchange, name) == getattr(exchange_sweep, name)


def test_sweep_ends_where_a_device_lacks_the_memory() -> None:
    swept = exchange_sweep.sweep(Counting(most=1 << 20), "cuda", bool)
    assert (swept["sizes"][-1]["bytes"], swept["ended"]) == (1 << 20, "memory")


def test_ranks_decide_together_when_the_time_is_over() -> None:
    decisions = iter([True, True, False])
    swept = exchange_sweep.sweep(Counting(), "cpu", lambda _: next(decisions))
    assert (len(swept["sizes"]), swept["ended"]) == (2, "time")


def test_next_size_must_fit_into_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size is expected to take as long as the last one, and its sums four times as long."""
    now = iter(range(0, 10**6, 5_000))
    monkeypatch.setattr(exchange_sweep, "monotonic_ns", lambda: next(now))
    monkeypatch.setattr(exchange_sweep, "BUDGET_NS", 25_000)
    wishes: list[bool] = []

    def decide(wish: bool) -> bool:
        wishes.append(wish)
        return wish

    swept = exchange_sweep.sweep(Counting(), "cpu", decide)
    # The clock moves 5 µs at each reading: sizes begin at 5, 15 and 25 µs, and each takes 5 µs.
    assert wishes == [True, True, False]
    assert (len(swept["sizes"]), swept["ended"]) == (2, "time")


def test_bandwidth_is_that_of_the_slowest_rank(tmp_path: Path) -> None:
    key = replace(MINI, devices=4, strategy="allreduce")

    def slow_rank(events: Events) -> None:
        for event in events:
            if event["kind"] == "exchange_sweep" and event["data"]["rank"] == 2:
                event["data"]["sizes"][-1]["times_ns"] = [
                    90_000_000,
                    1,
                    200_000_000,
                    100_000_000,
                    300_000_000,
                ]

    record = read_result(rewrite(write_good(tmp_path, Good(key=key)), slow_rank))
    last = sweep_rows(record)[-1]
    assert last["ns"] == 100_000_000
    # 2 (n - 1) / n = 1.5 of 64 MiB in 0.1 s.
    assert last["bus_bytes_per_s"] == pytest.approx(1.5 * (64 << 20) / 0.1)


def test_push_and_pull_through_a_server_has_no_bus_bandwidth(tmp_path: Path) -> None:
    key = replace(MINI, framework="mxnet", devices=2, strategy="parameter_server")
    for row in sweep_rows(read_result(write_good(tmp_path, Good(key=key)))):
        assert row["bus_bytes_per_s"] is None
        assert "is no all-reduce" in row["reason"]
