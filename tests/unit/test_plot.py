"""Figures: bars equal the results, with intervals; only comparable results share a figure."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.compare.result_row import row_of
from suite.metrics.metric import Metric
from suite.report import plot
from suite.report.grid import GridEntry, entry_of
from tests.fixtures.good_log import MINI, Good, write_good

pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed: make plot installs it")
SPREAD = (1.0, 1.05, 0.97, 1.02, 0.99)


def entry(
    folder: Path, *, hexes: str = "0a1b2c3d", out_of_memory_in: int | None = None, **key: Any
) -> GridEntry:
    made = Good(key=replace(MINI, **key), spread=SPREAD, run_hex=hexes, out_of_memory_in=out_of_memory_in)
    return entry_of(row_of(write_good(folder, made)))


def absent(like: GridEntry, framework: str) -> GridEntry:
    return replace(like, key={**like.key, "framework": framework}, status="N/A", row=None)


def bars(entries: dict[str, GridEntry], metric: str) -> tuple[Any, list[str]]:
    """The axis of one panel and all texts on it."""
    _, axis = pyplot.subplots()
    plot._panel(axis, "a benchmark", entries, list(entries), metric)
    return axis, [text.get_text().strip() for text in axis.texts]


def test_bar_shows_metric_and_whiskers_show_interval(tmp_path: Path) -> None:
    one = entry(tmp_path)
    assert one.row is not None
    axis, _ = bars({"pytorch": one}, "throughput")
    named = one.row.metrics
    assert axis.patches[0].get_height() == pytest.approx(named["throughput_per_s"].value)
    whiskers = axis.collections[0].get_segments()[0][:, 1]
    low, high = (named[f"throughput_{end}_per_s"].value for end in ("low", "high"))
    assert list(whiskers) == pytest.approx([low, high])
    assert low < named["throughput_per_s"].value < high  # type: ignore[operator]
    assert axis.get_ylabel() == "samples/s"
    assert axis.get_ylim()[0] == 0
    pyplot.close("all")


def test_long_interval_is_cut_and_its_end_labelled(tmp_path: Path) -> None:
    wide = Good(spread=(1.0, 3.4, 1.0, 1.0, 1.0))
    one = entry_of(row_of(write_good(tmp_path, wide)))
    assert one.row is not None
    value, high = (one.row.metrics[name].value for name in ("throughput_per_s", "throughput_high_per_s"))
    assert value is not None
    assert high is not None
    assert high > 2 * value
    axis, (label,) = bars({"pytorch": one}, "throughput")
    assert label.startswith(f"{value:,.0f}\n(to {high:,.0f})")
    assert axis.get_ylim()[1] == pytest.approx(2.5 * value)
    assert axis.collections[0].get_segments()[0][1, 1] == pytest.approx(2 * value)
    pyplot.close("all")


def test_mean_step_time_is_the_window_divided_by_its_steps(tmp_path: Path) -> None:
    one = entry(tmp_path)
    assert one.row is not None
    axis, _ = bars({"pytorch": one}, "step_time")
    assert axis.patches[0].get_height() == pytest.approx(2.0, rel=0.05)  # the imagined step, in ms
    assert axis.get_ylabel() == "ms"
    pyplot.close("all")


def test_missing_bar_shows_its_status(tmp_path: Path) -> None:
    one = entry(tmp_path)
    memory = entry(tmp_path, framework="tensorflow", out_of_memory_in=0)
    axis, texts = bars({"pytorch": one, "tensorflow": memory, "mxnet": absent(one, "mxnet")}, "throughput")
    assert len(axis.patches) == 1
    assert texts[1:] == ["OOM", "N/A"]
    _, texts = bars({"pytorch": one}, "peak_device_memory")
    assert texts == ["null"]
    pyplot.close("all")


def test_bytes_and_large_rates_are_scaled_with_unit(tmp_path: Path) -> None:
    axis, texts = bars({"pytorch": entry(tmp_path)}, "peak_host_memory")
    assert (axis.get_ylabel(), texts) == ("MiB", ["400"])
    assert plot._scaled([Metric(2e6, "tokens/s")]) == (1e6, "million tokens/s")
    pyplot.close("all")


def test_sheet_shows_one_group_one_device_and_the_newest_result(tmp_path: Path) -> None:
    old, new = entry(tmp_path), entry(tmp_path, hexes="ffffffff")
    assert old.row is not None
    elsewhere = replace(old, row=replace(old.row, device="NVIDIA H200"))
    found = plot.sheets([new, old, elsewhere, absent(old, "mxnet")])
    assert [sheet.device for sheet in found] == ["Imagined CPU", "NVIDIA H200"]
    ((_, cells),) = found[0].panels
    assert cells["pytorch"] == new
    assert cells["mxnet"].status == "N/A"
    other = replace(old, group=("practice", "mini", "synthetic", "throughput"))
    assert len(plot.sheets([old, other])) == 2


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_plot_command_writes_a_figure(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry(tmp_path / "results")
    entry(tmp_path / "results", framework="mxnet", phase="infer")
    out = tmp_path / f"a.{ending}"
    assert main(["plot", "--results-dir", str(tmp_path / "results"), "--out", str(out)]) == 0
    assert capsys.readouterr().out.split() == [str(out)]
    if ending == "png":
        assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        return
    text = out.read_text()
    for label in (
        "ncf f8 train fp32 batch 256",
        "samples/s",
        "pytorch",
        "mxnet",
        "95 % interval",
        "practice",
    ):
        assert label in text
    again = tmp_path / "b.svg"
    main(["plot", "--results-dir", str(tmp_path / "results"), "--out", str(again)])
    assert again.read_text() == text


def test_incomparable_groups_are_separate_files(tmp_path: Path) -> None:
    entry(tmp_path / "results")
    entry(tmp_path / "results", data="synthetic", framework="mxnet")
    assert main(["plot", "--results-dir", str(tmp_path / "results"), "--out", str(tmp_path / "a.svg")]) == 0
    names = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert names == [f"a-practice-mini-{data}-throughput-imagined-cpu.svg" for data in ("real", "synthetic")]
    out = tmp_path / "one.svg"
    arguments = ["--results-dir", str(tmp_path / "results"), "--out", str(out), "--data", "synthetic"]
    assert main(["plot", *arguments]) == 0
    assert out.is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--results-dir", "/nowhere"), "no such folder: /nowhere"),
        (("--out", "a.jpg"), "ends in .svg, .png or .pdf"),
        (("--phase", "infer"), "expected at least one accepted result"),
        (("--metric", "gpu_power"), "has the metric gpu_power"),
    ],
)
def test_plot_reports_metric_without_values(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry(tmp_path)
    assert main(["plot", "--results-dir", str(tmp_path), "--out", str(tmp_path / "a.svg"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_plot_without_matplotlib_states_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", "--results-dir", str(tmp_path), "--out", str(tmp_path / "a.svg")]) == 13
    assert "`make plot` installs it" in capsys.readouterr().err
