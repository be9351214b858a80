"""The metrics of a result, and the table that shows them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from suite.log.model import Record, Repeat
from suite.log.reader import read_result
from suite.metrics.counters import sampled
from suite.metrics.machine import facts
from suite.metrics.metric import Metric
from suite.metrics.physical_limit import physical_limit
from suite.metrics.resources import resources_of
from suite.metrics.run import _last_alike, metrics_of, title
from suite.report.explanation import explain_speed
from suite.report.table import print_table, quantity, sentence, show
from suite.report.wall_time import wall_time
from tests.fixtures.forged_ranks import TWO, TWO_NODES
from tests.fixtures.good_container import Container
from tests.fixtures.good_log import Good, write_good
from tests.fixtures.report_records import Events, device_sample, quality_record, throughput_record


def printed(record: Any, width: int = 80, **options: Any) -> str:
    out = io.StringIO()
    print_table(record, Console(file=out, width=width, highlight=False, **options))
    return out.getvalue()


def number(figure: Metric) -> float:
    assert figure.value is not None, figure.reason
    return float(figure.value)


def test_throughput_is_total_work_divided_by_total_time() -> None:
    found = metrics_of(throughput_record((10, 20, 10, 10, 10)))
    # 5 x 100,000 units in 1 + 2 + 1 + 1 + 1 seconds; the mean of the rates would be 90,000.
    assert found["throughput_per_s"].value == pytest.approx(500_000 / 6)
    assert found["throughput_per_s"].unit == "samples/s"


def test_interval_is_of_the_time_and_encloses_the_rate() -> None:
    found = metrics_of(throughput_record())
    rate, low, high = (number(found[f"throughput_{edge}per_s"]) for edge in ("", "low_", "high_"))
    half = 1.242 * number(found["cv_percent"]) / 100
    assert low == pytest.approx(rate / (1 + half))
    assert high == pytest.approx(rate / (1 - half))


def test_a_single_repeat_has_no_interval_but_a_reason() -> None:
    found = metrics_of(throughput_record((10,)))
    assert found["throughput_low_per_s"].value is None
    assert "2 to 20 repeats" in found["throughput_low_per_s"].reason


def test_spread_beyond_the_mean_gives_no_interval() -> None:
    assert metrics_of(throughput_record((1, 1, 1, 1, 90)))["throughput_high_per_s"].value is None


def test_step_percentiles_are_pooled_over_all_repeats() -> None:
    found = metrics_of(throughput_record((10, 20, 30, 40, 50)))
    assert [found[f"step_p{p}_ms"].value for p in (50, 90, 99)] == [30, 50, 50]
    assert "500 steps" in found["step_p50_ms"].note


def test_dispatch_timestamps_give_no_percentiles_but_a_reason() -> None:
    record = throughput_record(timestamp_kind="host_dispatch")
    assert metrics_of(record)["step_p50_ms"].value is None
    assert "host_dispatch" in metrics_of(record)["step_p50_ms"].reason
    assert "host_dispatch" in printed(record)


def test_loss_after_is_that_of_a_step_of_equal_work() -> None:
    record = throughput_record()
    units = record.repeats[0].global_units
    assert _last_alike([*units[:-20], *[2 * amount for amount in units[-20:]]]) == 89


def test_loss_is_reported_for_training_only() -> None:
    found = metrics_of(throughput_record())
    assert found["loss_first"].value == pytest.approx(2.0)
    assert found["loss_last"].value == pytest.approx(2.0 - 109 / 110)
    assert "loss_first" not in metrics_of(throughput_record(key={"phase": "infer"}))


def test_only_missing_values_have_a_reason() -> None:
    records = (
        throughput_record(),
        throughput_record(gpus=2),
        throughput_record((10,), input_wait_ns=None, reasons={"input_wait_ns": "not asked"}),
        quality_record(),
        quality_record(values=()),
    )
    for record in records:
        for name, figure in metrics_of(record).items():
            assert bool(figure.reason) == (figure.value is None), name


def test_reason_of_a_null_is_copied_from_the_log() -> None:
    memory = {"peak_rss_bytes": 5, "peak_device_bytes": None}
    reasons = {"memory.peak_device_bytes": "the allocator keeps no peak"}
    found = metrics_of(throughput_record(memory=memory, reasons=reasons))
    assert found["peak_device_memory_bytes"].reason == "the allocator keeps no peak"
    found = metrics_of(throughput_record(memory=None, reasons={"memory": "the worker was too quick"}))
    assert found["peak_host_memory_bytes"].reason == "the worker was too quick"


def test_first_sample_of_a_soak_is_left_out_on_every_node() -> None:
    make = Events()
    for offset, use in ((0, 0), (1, 90), (2, 90)):
        for node in (0, 1):
            devices = [device_sample(utilisation_percent=use)]
            make("telemetry", 0, source="sample", at="soak", node=node, offset_ns=offset, devices=devices)
    found = sampled([Repeat(0, tuple(make.made))], "utilisation_percent", 1.0, "%")
    assert found.value == 90
    assert found.note == "mean of 4 samples at 1 Hz: 0 in 1 window, 4 in the soaks"


def test_averages_name_windows_and_sample_counts() -> None:
    found = metrics_of(throughput_record(gpus=2))
    assert found["gpu_utilisation_percent"].value == 90
    assert found["gpu_utilisation_percent"].note == "mean of 10 samples at 1 Hz: 10 in 5 windows"
    assert found["gpu_power_w"].note.startswith("mean of 10 samples")  # windows of 1 s, and no soak
    assert found["cpu_host_cores"].value == pytest.approx(2)
    assert found["cpu_throttled_percent"].value == pytest.approx(1)
    found = metrics_of(throughput_record((20,) * 5, gpus=2))
    # 500 mJ a millisecond are 500 W, of each of the two devices.
    assert found["gpu_power_w"].value == pytest.approx(500)
    assert found["gpu_power_w"].note.endswith("over 5 windows")


def test_use_of_the_jpeg_engine_is_stated_where_images_are_read() -> None:
    real = throughput_record(gpus=2, key={"data": "real"})
    assert metrics_of(real)["jpeg_engine_percent"].value == 70
    assert "jpeg_engine_percent" not in metrics_of(throughput_record(gpus=2, key={"data": "synthetic"}))
    assert "jpeg_engine_percent" not in metrics_of(throughput_record(key={"data": "real"}))
    for event in (event for event in real.events if event.kind == "telemetry"):
        for device in event.data["devices"]:
            del device["jpeg_utilisation_percent"]  # as in a log that an earlier version wrote
    reason = metrics_of(real)["jpeg_engine_percent"].reason
    assert reason is not None
    assert reason.endswith("states jpeg_utilisation_percent")


def test_processors_in_use_are_a_share_of_those_of_all_nodes(tmp_path: Path) -> None:
    shares = []
    for good in (TWO, TWO_NODES):
        record = read_result(write_good(tmp_path / str(good.key.nodes), good))
        share = resources_of(record)["cpu_percent"]
        threads = good.key.nodes * facts(record, "outside")["cpu"]["threads"]
        assert share.note.startswith(f"of {threads} hardware threads")
        assert share.value is not None
        shares.append(share.value)
    assert shares[1] == pytest.approx(shares[0], rel=0.1)  # two equally busy nodes have twice the threads


def test_missing_accelerator_is_reported_once_and_never_zero() -> None:
    record = throughput_record()
    assert metrics_of(record)["gpu_power_w"].value is None
    assert printed(record).count("no accelerator in this run") == 1


def test_quality_needs_every_run_to_reach_the_target() -> None:
    found = metrics_of(quality_record((0.1, 0.5, 0.4)))
    assert found["time_to_quality_s"].value == 20
    assert found["quality"].value == pytest.approx(0.4)
    missed = metrics_of(quality_record((0.1, 0.2)))["time_to_quality_s"]
    assert missed.value is None
    assert "not reached in 1 of 1" in missed.reason
    assert "throughput_per_s" not in found


def test_quality_curve_has_one_line_per_evaluation() -> None:
    text = printed(quality_record((0.1, 0.4, 0.6)))
    assert text.count("  step ") == 3
    assert text.count("reached") == 1


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("record", [throughput_record(), throughput_record(gpus=8), quality_record()])
def test_table_is_complete_at_any_width(record: Any, width: int) -> None:
    text = printed(record, width)
    assert max(map(len, text.splitlines())) <= width
    joined = " ".join(text.split())
    for name in ("peak memory host 512.00 MiB", "set-up 2 s, compile 0.5 s", "why: "):
        assert name in joined
    assert "…" not in text


def test_pipe_and_no_color_get_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed(throughput_record())
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = printed(throughput_record(), force_terminal=True)
    assert "\x1b[3" not in terminal  # no colour; bold and dim may stay
    monkeypatch.delenv("NO_COLOR")


def test_table_escapes_text_of_a_log() -> None:
    record = throughput_record(memory=None, reasons={"memory": "\x1b[31mred\x1b[0m [bold]markup[/bold]"})
    text = printed(record)
    assert "\x1b" not in text
    assert "[bold]markup[/bold]" in " ".join(text.split())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_234_567.8, "samples/s", "1,234,568 samples/s"),
        (0.5, "ms", "500 µs"),
        (12.345, "ms", "12.35 ms"),
        (3 * 2**30, "bytes", "3.00 GiB"),
        (512, "bytes", "512 B"),
        (0, "%", "0 %"),
    ],
)
def test_quantities_are_formatted_with_units(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_missing_values_are_null_with_their_reason() -> None:
    gone = Metric(None, reason="not measured")
    assert show(gone) == "null"
    assert sentence([("a", gone), ("b", gone)]) == "null (not measured)"
    assert (
        sentence([("a", gone), ("b", Metric(1.5, "s", note="mean"))])
        == "a null (not measured); b 1.5 s (mean)"
    )


def test_title_names_the_whole_key() -> None:
    text = title(throughput_record())
    for key_part in (
        "ncf",
        "f8",
        "pytorch",
        "train",
        "fp32",
        "mini",
        "256",
        "real",
        "warm",
        "practice",
        "Example CPU",
    ):
        assert key_part in text


def test_explanation_on_cpu_states_unknown_limit() -> None:
    line = explain_speed(throughput_record())
    assert "share of the physical limit unknown" in line
    assert "waited for input 2 %" in line
    assert "throttled: CPU 1 %" in line
    assert "last steps as fast as the first" in line
    assert "\n" not in line


def test_explanation_on_known_device_states_share_of_limit() -> None:
    key = {
        "scale": "reference",
        "batch": 1_048_576,
        "data": "synthetic",
        "precision": "bf16",
        "variant": "f64",
    }
    share = physical_limit(throughput_record((10,) * 5, gpus=1, key=key))
    assert number(share) > 0
    slower = physical_limit(throughput_record((20,) * 5, gpus=1, key=key))
    assert slower.value == pytest.approx(number(share) / 2)
    assert "NVIDIA H200" in share.note


def test_power_uses_samples_without_energy_counter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.fixtures import report_records

    monkeypatch.setattr(
        report_records, "device_sample", lambda **values: device_sample(**{**values, "energy_mj": None})
    )
    found = metrics_of(throughput_record(gpus=1))
    assert found["gpu_power_w"].value == pytest.approx(600)
    assert "samples" in found["gpu_power_w"].note


def test_incomplete_run_is_headed_no_score() -> None:
    record = throughput_record((10, 11))
    assert "NO SCORE" not in printed(record)
    assert "NO SCORE: this run ended out of memory" in printed(with_outcome(record, "out_of_memory"))
    assert "NO SCORE: this run ended without an end" in printed(replace(record, footer=None))


def test_out_of_memory_is_shown_instead_of_score(tmp_path: Path) -> None:
    text = printed(read_result(write_good(tmp_path, Good(out_of_memory_in=2))))
    rows = [line for line in text.splitlines() if line.startswith("throughput")]
    assert rows == ["throughput   OOM (in repeat 2, phase setup: OutOfMemoryError: tried to allocate "]
    assert "95 % interval" not in text


def test_table_shows_image_and_limits(tmp_path: Path) -> None:
    good = Good(container=Container(limits={"cpus": "1", "memory_bytes": 2 << 30}))
    text = printed(read_result(write_good(tmp_path, good)), 120)
    assert "imagined by docker (not closed-ready: not in the lock)" in text
    assert "cpus 1, memory 2.00 GiB" in text
    assert "limits" not in printed(read_result(write_good(tmp_path / "native", Good())))


def with_outcome(record: Record, outcome: str) -> Record:
    assert record.footer is not None
    return replace(record, footer=replace(record.footer, data={**record.footer.data, "outcome": outcome}))


def test_run_without_a_completed_repeat_has_no_metrics() -> None:
    record = throughput_record(())
    assert metrics_of(record) == {}
    assert explain_speed(record) == "no repeat was completed"


def test_wall_time_has_every_second_of_the_run(tmp_path: Path) -> None:
    record = read_result(write_good(tmp_path, Good()))
    text = wall_time(record)
    measured = sum(repeat.window_ns or 0 for repeat in record.repeats) / 1e9
    assert text.startswith(f"{record.events[-1].mono_ns / 1e9:.1f} s for {measured:.1f} s measured: ")
    parts = dict(part.rsplit(" ", 1) for part in text.partition(": ")[2].split(", "))
    assert sum(map(float, parts.values())) == pytest.approx(
        record.events[-1].mono_ns / 1e9 - measured, abs=0.5
    )
    soak = sum(repeat.reports[0]["soak_ns"] for repeat in record.repeats) / 1e9
    assert soak == 0 or float(parts["soak"]) == pytest.approx(soak, abs=0.05)
    assert text in printed(record, 400)
    assert wall_time(replace(record, footer=None)) == ""


def test_several_ranks_are_named_and_their_memory_is_added(tmp_path: Path) -> None:
    one, two = (
        read_result(write_good(tmp_path / str(ranks), Good(replace(Good().key, devices=ranks))))
        for ranks in (1, 2)
    )
    assert "batch 256 on Imagined CPU;" in title(one)
    assert "batch 256 per device on 2 ranks, Imagined CPU;" in title(two)
    memory = [metrics_of(record)["peak_host_memory_bytes"] for record in (one, two)]
    assert number(memory[1]) == 2 * number(memory[0])
    assert memory[1].note.endswith("sum of 2 ranks")
