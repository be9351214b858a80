"""Curves of a log: every number is one of the log's, and a missing one keeps its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.figures import one_result
from suite.log.model import Record
from suite.log.reader import read_result
from suite.log.units import significant
from suite.metrics.curves import TELEMETRY, curves_of
from tests.fixtures.forging import Events, Forge, rewrite
from tests.fixtures.good_log import Good, reference, write_good

SPREAD = (1.0, 1.05, 0.97, 1.02, 0.99)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return read_result(write_good(tmp_path_factory.mktemp("gpu"), reference(spread=SPREAD)))


@pytest.fixture(scope="module")
def curves(record: Record) -> dict[str, Any]:
    return curves_of(record)


def test_steps_are_the_durations_of_the_measured_steps(record: Record, curves: dict[str, Any]) -> None:
    assert curves["steps_ns"] == [[list(repeat.durations_ns(0))] for repeat in record.repeats]
    assert [len(ranks[0]) for ranks in curves["steps_ns"]] == [100] * 5
    rows = one_result.step_trace(curves).table.rows
    assert [row[0] for row in rows] == [str(step) for step in range(10, 110)]
    for at, row in enumerate(rows):
        times = [repeat.durations_ns(0)[at] / 1e6 for repeat in record.repeats]
        assert row[1:] == tuple(significant(ms) for ms in times)


def test_telemetry_is_that_of_the_samples(record: Record, curves: dict[str, Any]) -> None:
    samples = [sample for repeat in record.repeats for sample in repeat.all_samples]
    expected = [(one["offset_ns"] / 1e9, one["devices"][0]["power_mw"] / 1e3) for one in samples]
    (series,) = curves["telemetry"]["gpu_power"]["series"]
    assert [tuple(point) for repeat in series["repeats"] for point in repeat] == expected
    figure = one_result.telemetry(curves, "gpu_power")
    assert figure.table.rows == tuple((significant(x), significant(y)) for x, y in expected)
    assert figure.table.headings == ("time since the start of the run (s)", "GPU power (W)")


def test_rates_are_increases_per_second_within_a_repeat(record: Record, curves: dict[str, Any]) -> None:
    (series,) = curves["telemetry"]["rank_cpu"]["series"]
    for repeat, points in zip(record.repeats, series["repeats"], strict=True):
        samples = repeat.all_samples
        assert len(points) == max(len(samples) - 1, 0)
        for before, after, (seconds, cores) in zip(samples, samples[1:], points, strict=False):
            used = after["processes"]["cpu_time_ns"] - before["processes"]["cpu_time_ns"]
            assert seconds == after["offset_ns"] / 1e9
            assert cores == pytest.approx(used / (after["offset_ns"] - before["offset_ns"]))


def test_windows_and_phases_lie_on_the_clock_of_the_samples(record: Record, curves: dict[str, Any]) -> None:
    ends = [repeat.end.data["window"] for repeat in record.repeats if repeat.end is not None]
    assert curves["windows"] == [[(end["close_ns"] - end["ns"]) / 1e9, end["close_ns"] / 1e9] for end in ends]
    times = [one["offset_ns"] / 1e9 for one in record.repeats[0].samples("tail")]
    assert [min(times), max(times)] in curves["phases"]


def nulled(path: str) -> Forge:
    """No sample has the field ``path``, and each repeat_end says why."""

    def forge(events: Events) -> None:
        *holders, name = path.split(".")
        for event in events:
            if event["kind"] == "telemetry" and event["data"]["source"] == "sample":
                holder = event["data"]
                for key in holders:
                    holder = holder[int(key) if key.isdigit() else key]
                holder[name] = None
            if event["kind"] == "repeat_end":
                event["data"]["reasons"][f"telemetry.{path}"] = "Not Supported"

    return forge


def test_null_of_all_samples_keeps_its_reason(tmp_path: Path) -> None:
    for number, path in enumerate(("devices.0.power_mw", "devices", "processes.rss_bytes")):
        folder = write_good(tmp_path / str(number), reference())
        record = read_result(rewrite(folder, nulled(path)))
        name = "rank_memory" if path.startswith("processes") else "gpu_power"
        assert curves_of(record)["telemetry"][name]["reason"] == "Not Supported", path


def test_run_without_a_gpu_has_no_gpu_curves_and_says_why(tmp_path: Path) -> None:
    found = curves_of(read_result(write_good(tmp_path, Good())))
    assert found["telemetry"]["gpu_power"] == {
        "label": "GPU power", "unit": "W", "reason": "the run has no samples of it", "series": [],
    }  # fmt: skip
    assert "no values: the run has no samples of it" in one_result.telemetry(found, "gpu_power").file()


def test_timestamps_of_dispatch_are_no_step_times(tmp_path: Path) -> None:
    found = curves_of(read_result(write_good(tmp_path, Good(timestamp_kind="host_dispatch"))))
    assert found["steps_ns"] == []
    for draw in (one_result.step_histogram, one_result.step_ecdf, one_result.step_trace):
        figure = draw(found)
        assert figure.table.rows == ()
        assert "no values: timestamps of kind host_dispatch" in figure.file()


def test_every_quantity_is_drawn(curves: dict[str, Any]) -> None:
    for name in TELEMETRY:
        figure = one_result.telemetry(curves, name)
        assert bool(figure.table.rows) == bool(curves["telemetry"][name]["series"])
        assert curves["telemetry"][name]["series"] or curves["telemetry"][name]["reason"]
