"""The timing loop, with a framework and a pair that only note what was asked of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from suite.worker import loop


class Noted:
    """A framework and a pair in one: every call is noted; timestamps are counts of calls."""

    timestamp_kind = "device"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.pending: list[int] = []

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def prepare_timestamps(self, count: int) -> None:
        self.calls.append(f"prepare {count}")

    def record_timestamp(self, index: int) -> None:
        self.calls.append(f"mark {index}")

    def read_timestamps(self, count: int) -> list[int]:
        self.calls.append("read")
        return list(range(1, count))

    def step(self, index: int) -> None:
        self.calls.append(f"step {index}")
        self.pending.append(index)

    def collect(self) -> list[Any]:
        self.calls.append("collect")
        done, self.pending = self.pending, []
        return [np.float64(index) for index in done]


def test_the_window_is_drained_at_both_edges_and_nowhere_else() -> None:
    noted = Noted()
    span = loop.run_span(noted, noted, 10, 3)
    assert noted.calls == [
        *("prepare 4", "synchronize", "mark 0"),
        *("step 10", "mark 1", "step 11", "mark 2", "step 12", "mark 3"),
        *("synchronize", "collect", "read"),
    ]
    assert [float(value) for value in span.results] == [10.0, 11.0, 12.0]
    assert span.timestamps == [1, 2, 3]


def test_the_span_holds_its_parts() -> None:
    noted = Noted()
    span = loop.run_span(noted, noted, 0, 5)
    assert span.ns == span.close_ns - span.open_ns > 0
    assert 0 <= span.collect_ns <= span.ns
    assert span.dispatched == sorted(span.dispatched)
    assert span.dispatched[-1] <= span.ns - span.collect_ns


class Late(Noted):
    """The framework's own thread takes the timestamps, and the host learns of the end later."""

    def synchronize(self) -> None:
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["device", "host_completion", "host_dispatch"])
def test_on_a_processor_the_last_step_ends_where_the_host_sees_it_end(kind: str) -> None:
    late = Late()
    late.timestamp_kind = kind
    span = loop.run_span(late, late, 0, 3)
    assert span.timestamps[:2] == [1, 2]
    if kind == "host_completion":
        assert span.timestamps[2] == span.ns - span.collect_ns > 10_000_000
    else:
        assert span.timestamps[2] == 3


def test_single_stream_waits_for_each_output() -> None:
    noted = Noted()
    span = loop.run_single_stream(noted, noted, 10, 3)
    assert noted.calls == ["synchronize", "step 10", "collect", "step 11", "collect", "step 12", "collect"]
    assert span.timestamps == span.dispatched == sorted(span.timestamps)
    assert span.timestamps[-1] <= span.ns


@pytest.mark.parametrize("length", [0, -1])
def test_no_soak_runs_no_step(length: int) -> None:
    noted = Noted()
    assert loop.soak(noted, noted, length, 110) == 0
    assert noted.calls == []


def test_soak_drains_every_chunk_and_drops_results() -> None:
    noted = Noted()
    done = loop.soak(noted, noted, 1_000_000, 7, chunk=4)
    assert done % 4 == 0
    assert noted.calls.count("synchronize") == noted.calls.count("collect") == done // 4
    assert {call for call in noted.calls if call.startswith("step")} <= {f"step {i}" for i in range(7)}
    assert noted.pending == []
