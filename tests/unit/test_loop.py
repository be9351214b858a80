"""The timing loop, with a framework and a pair that record the calls."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suite.common.image_reader import AHEAD
from suite.contract import STEPS, WARMUP_STEPS
from suite.worker import loop
from suite.worker.conversion import ConversionBench
from suite.worker.main import Bench, prepare
from suite.worker.record import RecordingData


class Recorder:
    """A framework and a pair in one that records every call; its timestamps are 1, 2, 3 …"""

    timestamp_kind = "device"
    arrivals: Any = None

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.pending: list[int] = []

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def prepare_timestamps(self, count: int) -> None:
        self.calls.append(f"prepare {count}")

    def record_timestamp(self, index: int) -> None:
        self.calls.append(f"timestamp {index}")

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


def test_span_drains_the_device_at_its_start_and_end_only() -> None:
    recorder = Recorder()
    span = loop.run_span(recorder, recorder, 10, 3)
    assert recorder.calls == [
        *("prepare 4", "synchronize", "timestamp 0"),
        *("step 10", "timestamp 1", "step 11", "timestamp 2", "step 12", "timestamp 3"),
        *("synchronize", "collect", "read"),
    ]
    assert [float(value) for value in span.results] == [10.0, 11.0, 12.0]
    assert span.timestamps == [1, 2, 3]


def test_span_contains_collection_and_dispatch_times() -> None:
    recorder = Recorder()
    span = loop.run_span(recorder, recorder, 0, 5)
    assert span.ns == span.close_ns - span.open_ns > 0
    assert 0 <= span.collect_ns <= span.ns
    assert span.dispatched == sorted(span.dispatched)
    assert span.dispatched[-1] <= span.ns - span.collect_ns


class Interrupted(Recorder):
    """A device that ends each step at once; another thread then runs for 2 ms before the host goes on."""

    def prepare_timestamps(self, count: int) -> None:
        self.ends = [0] * count

    def record_timestamp(self, index: int) -> None:
        self.ends[index] = time.monotonic_ns()
        time.sleep(0.002)

    def read_timestamps(self, count: int) -> list[int]:
        return [end - self.ends[0] for end in self.ends[1:count]]


def test_step_ends_after_its_dispatch_where_the_host_is_interrupted() -> None:
    device = Interrupted()
    span = loop.run_span(device, device, 0, 3)
    opened = device.ends[0] - span.open_ns
    for sent, end in zip(span.dispatched, span.timestamps, strict=True):
        assert sent <= end + opened


class LateStart(Interrupted):
    """A framework on a host where another process takes the CPU for 20 ms before the first timestamp."""

    timestamp_kind = "host_completion"
    late = True

    def record_timestamp(self, index: int) -> None:
        if self.late:
            time.sleep(0.02)
            self.late = False
        self.ends[index] = time.monotonic_ns()


def test_step_does_not_end_before_its_dispatch_if_the_host_is_late_at_the_start() -> None:
    late = LateStart()
    span = loop.run_span(late, late, 0, 3)
    assert not late.late
    for sent, end in zip(span.dispatched, span.timestamps, strict=True):
        assert sent <= end + loop.TOGETHER_NS


class Late(Recorder):
    """A thread of the framework records the timestamps; the host notices the end 20 ms later."""

    def synchronize(self) -> None:
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["device", "host_completion", "host_dispatch"])
def test_last_host_completion_timestamp_is_the_end_of_the_drain(kind: str) -> None:
    late = Late()
    late.timestamp_kind = kind
    span = loop.run_span(late, late, 0, 3)
    assert span.timestamps[:2] == [1, 2]
    if kind == "host_completion":
        assert span.timestamps[2] == span.ns - span.collect_ns > 10_000_000
    else:
        assert span.timestamps[2] == 3


def test_single_stream_collects_each_output_before_the_next_step() -> None:
    recorder = Recorder()
    span = loop.run_single_stream(recorder, recorder, 10, 3)
    assert recorder.calls == ["synchronize", "step 10", "collect", "step 11", "collect", "step 12", "collect"]
    assert span.timestamps == span.dispatched == sorted(span.timestamps)
    assert span.timestamps[-1] <= span.ns


@pytest.mark.parametrize("length", [0, -1])
def test_soak_of_no_length_runs_no_step(length: int) -> None:
    recorder = Recorder()
    assert loop.soak(recorder, recorder, length, 110)[0] == 0
    assert recorder.calls == []


def test_soak_with_a_cold_cache_reads_no_batch_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """It read the batches of the window, so that a cold window was warm."""

    class Pair(Recorder):
        def reset(self) -> None:
            self.calls.append("reset")

        def parameters(self) -> dict[str, Any]:
            return {}

    assert Bench.cold_batches - 1 + AHEAD < WARMUP_STEPS
    assert ConversionBench.cold_batches == WARMUP_STEPS
    for cache, read in (("cold", Bench.cold_batches), ("warm", STEPS)):
        recorder = Pair()
        key = SimpleNamespace(cache=cache)
        job = SimpleNamespace(key=key, soak_ns=20_000_000, world_size=1)
        data = RecordingData(SimpleNamespace(slot=lambda step: None, steps_per_epoch=1))
        channel = SimpleNamespace(phase=lambda name: None)
        with monkeypatch.context() as patched:  # 10 µs between any two looks at the clock
            patched.setattr(loop, "monotonic_ns", itertools.count(0, 10_000).__next__)
            prepare(Bench(job, channel, recorder, recorder, data), 0, 0)  # type: ignore[arg-type]
        steps = {int(call.split()[1]) for call in recorder.calls if call.startswith("step")}
        assert steps == set(range(read))


def test_soak_drains_every_chunk_and_drops_results() -> None:
    recorder = Recorder()
    done, (start, end) = loop.soak(recorder, recorder, 1_000_000, 7, chunk=4)
    assert end - start >= 1_000_000
    assert done % 4 == 0
    assert recorder.calls.count("synchronize") == recorder.calls.count("collect") == done // 4
    assert {call for call in recorder.calls if call.startswith("step")} <= {f"step {i}" for i in range(7)}
    assert recorder.pending == []
