"""`plot`: the axis of a sweep is an axis, and every setting that differs is said."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.compare.result_row import ResultRow
from suite.compare.settings import measured, name_of, setting_text
from suite.contract.traits import traits_of
from suite.figures.results import METRICS, Measured, axis_of, figures, panels
from suite.figures.svg import Figure
from suite.log.reader import read_result
from suite.log.units import significant
from suite.metrics.metric import Metric
from suite.report.grid import entry_of
from tests.fixtures.good_log import MINI, Good, reference, write_good

SPREAD = (1.0, 1.05, 0.97, 1.02, 0.99)


def result(folder: Path, *, hexes: str = "0a1b2c3d", memory: int | None = None, **key: Any) -> Measured:
    """A checked result of an imagined run whose key has these changes."""
    good = Good(key=replace(MINI, **key), spread=SPREAD, run_hex=hexes, out_of_memory_in=memory)
    return of_folder(write_good(folder, good))


def of_folder(folder: Path) -> Measured:
    answer = measured(folder)
    row = ResultRow.of_dict(answer["row"])
    entry = entry_of(row)
    assert entry.settled, entry.why
    return Measured(
        entry.group, answer["settings"], entry.status, entry.why, row, answer["repeats"], answer["code"]
    )


def with_settings(one: Measured, run_id: str = "", **changes: Any) -> Measured:
    """The result as if it had been measured with other settings."""
    assert one.row is not None
    row = replace(one.row, run_id=run_id or one.row.run_id)
    return replace(one, settings={**one.settings, **changes}, row=row)


def texts(figure: Figure) -> list[str]:
    return [html.unescape(one) for one in re.findall(r"<text[^>]*>([^<]*)</text>", figure.file())]


def series(figure: Figure) -> list[str]:
    return list(dict.fromkeys(row[0] for row in figure.table.rows))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return result(tmp_path_factory.mktemp("one"))


def test_batch_is_the_axis_in_numeric_order_with_frameworks_as_series(tmp_path: Path) -> None:
    found = [
        result(tmp_path, framework=framework, batch=batch, hexes=f"{index:08x}")
        for index, (framework, batch) in enumerate(
            (framework, batch) for framework in ("tensorflow", "pytorch") for batch in (1024, 256, 64)
        )
    ]
    (figure,) = figures(found, "throughput")
    assert figure.title == "Throughput over batch per device: ncf f8 train"
    assert [row[:2] for row in figure.table.rows] == [
        (framework, batch) for framework in ("pytorch", "tensorflow") for batch in ("64", "256", "1,024")
    ]
    labels = [text for text in texts(figure) if text in ("64", "256", "1,024")]
    assert labels == ["64", "256", "1,024"]
    assert "practice division, mini scale, real data" in "".join(texts(figure))


def test_another_number_of_threads_is_a_series_of_its_own(one: Measured) -> None:
    found = [with_settings(one, batch=batch) for batch in (256, 512, 1024)]
    found.append(with_settings(one, "20990101T0000Z-newest", batch=1024, threads=99))
    (figure,) = figures(found, "throughput")
    assert series(figure) == ["2 threads", "99 threads"]
    assert len(figure.table.rows) == 4


def test_reuse_of_compiled_code_is_said_where_the_start_of_a_run_is_drawn(one: Measured) -> None:
    found = [one, with_settings(one, "20990101T0000Z-newest", reuse_compiled=True)]
    (figure,) = figures(found, "throughput")
    assert len(figure.table.rows) == 1
    assert "1 result with settings equal to those of a newer one is not shown" in "".join(texts(figure))
    for metric in ("setup", "compile"):
        (figure,) = figures(found, metric)
        assert [row[0] for row in figure.table.rows].count("reuse compiled") == 1
        assert len(figure.table.rows) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"threads": 99}, "99 threads"),
        ({"cpus": "2"}, "cpus 2"),
        ({"memory_bytes": 2**30}, "memory 1.00 GiB"),
        ({"loader": "dali"}, "loader dali"),
        ({"image": "ngc-pytorch"}, "image ngc-pytorch"),
        ({"runtime": "docker"}, "runtime docker"),
        ({"precision": "bf16"}, "bf16"),
        ({"device": "NVIDIA H200"}, "NVIDIA H200"),
        ({"cache": "cold"}, "cold cache"),
        ({"fast": False}, "no fast path"),
        ({"hyper.rate": "0.5"}, "rate 0.5"),
        ({"dataset.digest": "ab" * 32}, "dataset abababab"),
        ({"wait_policy": "active"}, "wait policy active"),
        ({"soak_ns": 5_000_000_000}, "soak 5 s"),
        ({"version": "9.9"}, "version 9.9"),
        ({"driver": "580.1"}, "driver 580.1"),
    ],
)
def test_every_setting_that_differs_is_said(one: Measured, changes: dict[str, Any], said: str) -> None:
    (name,) = changes
    first = with_settings(one, fast=True)
    other = with_settings(first, "20990101T0000Z-b", **changes)
    for found in ([first, other], [with_settings(o, batch=b) for o in (first, other) for b in (256, 512)]):
        drawn = figures(found, "throughput")
        shown = " ".join(" ".join(texts(figure)) for figure in drawn)
        assert sum(len(figure.table.rows) for figure in drawn) == len(found), name
        assert said in shown or AXES_SAY.get(name, "-") in drawn[0].title


AXES_SAY = {"threads": "over threads per rank", "cpus": "over processors", "memory_bytes": "over memory"}


def test_versions_of_two_frameworks_are_no_difference(one: Measured) -> None:
    found = [with_settings(one, framework=name, version=name[0]) for name in ("pytorch", "jax")]
    (figure,) = figures(found, "throughput")
    assert {row[0] for row in figure.table.rows} == {"pytorch", "jax"}
    assert not any("version" in text for text in texts(figure))


def test_what_all_have_in_common_is_said_once(one: Measured) -> None:
    (figure,) = figures([with_settings(one, framework=name) for name in ("pytorch", "jax")], "throughput")
    shown = texts(figure)
    assert sum("2 threads" in text for text in shown) == 1
    assert not any("threads" in row[0] for row in figure.table.rows)


def test_of_results_with_equal_settings_the_newest_is_shown_and_the_note_says_so(one: Measured) -> None:
    assert one.row is not None
    new = replace(one.row.metrics["throughput_per_s"], value=7.0)
    row = replace(
        one.row, run_id="20990101T0000Z-newest", metrics={**one.row.metrics, "throughput_per_s": new}
    )
    (figure,) = figures([replace(one, row=row), one], "throughput")
    assert [cells[1] for cells in figure.table.rows] == ["7"]
    assert any(
        "1 result with settings equal to those of a newer one is not shown" in text for text in texts(figure)
    )


def test_other_divisions_scales_data_and_modes_have_other_figures(one: Measured) -> None:
    for index, other in enumerate(("open", "reference", "synthetic", "quality")):
        group = list(one.group)
        group[index] = other
        assert len(figures([one, replace(one, group=tuple(group))], "throughput")) == 2  # type: ignore[arg-type]


def test_without_an_axis_results_of_one_unit_share_a_figure_by_value(one: Measured) -> None:
    assert one.row is not None

    def of(workload: str, value: float, unit: str) -> Measured:
        assert one.row is not None
        metrics = {"throughput_per_s": Metric(value, unit)}
        settings = {**one.settings, "workload": workload, "variant": "v1"}
        return replace(one, settings=settings, row=replace(one.row, metrics=metrics), repeats={})

    found = [of("alexnet", 9, "images/s"), of("vgg16", 100, "images/s"), of("googlenet", 20, "images/s")]
    drawn = figures([*found, of("gnmt", 5, "tokens/s")], "throughput")
    assert [[row[0] for row in figure.table.rows] for figure in drawn] == [
        ["vgg16", "googlenet", "alexnet"],
        ["pytorch"],
    ]


def test_devices_have_an_ideal_line_and_one_device_begins_every_strategy(one: Measured) -> None:
    found = [with_settings(one, devices=1)]
    for strategy in ("allreduce", "independent"):
        found += [with_settings(one, devices=count, strategy=strategy) for count in (2, 4)]
    (panel,) = panels(found)
    assert axis_of(panel, "throughput_per_s") == "devices"
    (figure,) = figures(found, "throughput")
    assert [row[:2] for row in figure.table.rows] == [
        (strategy, count) for strategy in ("allreduce", "independent") for count in ("1", "2", "4")
    ]
    assert "ideal: in proportion to the devices" in texts(figure)
    (figure,) = figures(found, "step_time")
    assert not any("ideal" in text for text in texts(figure))


def test_missing_results_show_why(tmp_path: Path, one: Measured) -> None:
    memory = result(tmp_path, framework="tensorflow", memory=0)
    absent = Measured(one.group, {**one.settings, "framework": "mxnet"}, "N/A", "no wheel")
    (figure,) = figures([one, memory, absent], "throughput")
    assert [row[0] for row in figure.table.rows] == ["pytorch", "mxnet", "tensorflow"]
    assert figure.table.rows[1][2] == "N/A (no wheel)"
    assert figure.table.rows[2][2].startswith("OOM (")
    swept = [with_settings(one, batch=batch) for batch in (256, 512)]
    (figure,) = figures(
        [*swept, with_settings(replace(memory, settings=one.settings), batch=1024)], "throughput"
    )
    assert figure.table.rows[-1][:2] == ("1,024", figure.table.rows[-1][1])
    assert figure.table.rows[-1][1].startswith("null (")
    assert {"OOM", "no value"} <= set(texts(figure))


@pytest.mark.parametrize("metric", ["throughput", "step_time", "step_p50", "step_p99", "peak_host_memory"])
def test_figures_have_the_numbers_of_the_log(metric: str, one: Measured) -> None:
    assert one.row is not None
    (figure,) = figures([one], metric)
    shown = METRICS[metric]
    values = [one.row.metrics[name].value for name in (shown.name, shown.low, shown.high) if name]
    cells = [Metric(value).value for value in (*values, *one.repeats.get(shown.name, ()))]
    assert len(cells) >= 6
    if metric == "peak_host_memory":
        assert set(figure.table.rows[0][1:]) == {"400.00 MiB"}
    else:
        assert figure.table.rows[0][1:] == tuple(significant(float(value or 0)) for value in cells)


def test_repeats_are_those_of_the_windows(tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good(spread=SPREAD))
    record = read_result(folder)
    windows = [(repeat.units or 0, repeat.window_ns or 1) for repeat in record.repeats]
    found = measured(folder)["repeats"]
    assert found["throughput_per_s"] == [pytest.approx(1e9 * units / ns) for units, ns in windows]
    assert found["step_mean_ms"] == [pytest.approx(ns / 1e8) for _, ns in windows]


def test_latency_is_drawn_over_throughput_with_the_batch_at_each_point(one: Measured) -> None:
    (figure,) = figures([with_settings(one, batch=batch) for batch in (256, 512)], "latency")
    assert [row[-1] for row in figure.table.rows] == ["batch 256", "batch 512"]
    assert "batch 256" in texts(figure)
    assert figure.table.headings[:2] == ("throughput (samples/s)", "99th percentile of step time (ms)")


def test_more_series_than_styles_have_several_figures(one: Measured) -> None:
    found = [
        with_settings(one, batch=batch, **{"hyper.rate": str(n)}) for n in range(9) for batch in (256, 512)
    ]
    drawn = figures(found, "throughput")
    assert [figure.title.rpartition(" (")[2] for figure in drawn] == ["1 of 2)", "2 of 2)"]
    assert sum(len(figure.table.rows) for figure in drawn) == 18


def test_many_series_of_one_point_are_no_sweep_but_rows_by_value(one: Measured) -> None:
    found = [with_settings(one, **{"hyper.rate": str(number)}) for number in range(6)]
    found.append(with_settings(found[0], batch=512))
    (figure,) = figures(found, "throughput")
    assert figure.title == "Throughput"
    assert len(figure.table.rows) == len(found)
    assert len({row[0] for row in figure.table.rows}) == len(found)


def test_lines_of_one_framework_have_a_colour_each(one: Measured) -> None:
    def colours(*changes: dict[str, Any]) -> set[str]:
        found = [with_settings(one, batch=batch, **change) for change in changes for batch in (256, 512)]
        (figure,) = figures(found, "throughput")
        lines = re.findall(r'<path [^>]*stroke-linejoin="round"[^>]*>', figure.file())
        return {shown[1] for one in lines if (shown := re.search(r'stroke="([^"]*)"', one))}

    assert len(colours({"precision": "fp32"}, {"precision": "bf16"}, {"precision": "fp16"})) == 3
    mixed = [
        {"framework": name, "precision": kind} for name in ("pytorch", "jax") for kind in ("fp32", "bf16")
    ]
    assert colours(*mixed) == {traits_of("pytorch").colour, traits_of("jax").colour}


def test_settings_are_words() -> None:
    assert setting_text("nodes", 2) == "2 nodes"
    assert setting_text("batch", 65536) == "batch 65,536"
    assert setting_text("cpus", None) == ""
    assert (
        name_of({"threads": 1, "framework": "jax", "cpuset": None}, ["threads", "cpuset", "framework"])
        == "jax, 1 thread"
    )


# ---- the command ----


def plot(folder: Path, *arguments: str) -> int:
    return main(["plot", "--results-dir", str(folder), *arguments])


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_command_writes_the_file(tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    result(tmp_path / "results")
    result(tmp_path / "results", framework="mxnet", phase="infer")
    out = tmp_path / "new" / f"a.{ending}"
    assert plot(tmp_path / "results", "--out", str(out)) == 0
    assert capsys.readouterr().out.split() == [str(out)]
    content = out.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n" if ending == "png" else b"<svg ")
    assert plot(tmp_path / "results", "--out", str(tmp_path / f"b.{ending}")) == 0
    assert (tmp_path / f"b.{ending}").read_bytes() == content


def test_existing_file_is_kept_unless_it_may_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result(tmp_path / "results")
    out = tmp_path / "a.svg"
    out.write_text("mine")
    assert plot(tmp_path / "results", "--out", str(out)) == 2
    assert "exists already" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert plot(tmp_path / "results", "--out", str(out), "--force") == 0
    assert out.read_text() != "mine"
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert plot(tmp_path / "results") == 0
    drawn = sorted(path.name for path in (tmp_path / "results/plots").iterdir())
    assert drawn == ["throughput-2.svg", "throughput.svg"]


@pytest.mark.parametrize("metric", ["step_histogram", "step_ecdf", "step_trace", "telemetry"])
def test_step_times_and_telemetry_are_drawn(metric: str, tmp_path: Path) -> None:
    write_good(tmp_path / "results", reference(spread=SPREAD))
    out = tmp_path / "a.svg"
    assert plot(tmp_path / "results", "--metric", metric, "--out", str(out)) == 0
    text = out.read_text()
    assert "NVIDIA H200" in text
    assert ("GPU power" in text) == (metric == "telemetry")


def test_distributions_of_several_results_share_a_figure(tmp_path: Path) -> None:
    result(tmp_path / "results", batch=256)
    result(tmp_path / "results", batch=1024, hexes="ffffffff")
    out = tmp_path / "a.svg"
    assert plot(tmp_path / "results", "--metric", "step_ecdf", "--out", str(out)) == 0
    drawn = out.read_text()
    assert drawn.count("Distribution of step times: ncf f8 train</text>") == 1
    assert drawn.index(">batch 256<") < drawn.index(">batch 1,024<")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--results-dir", "/nowhere"), "no such folder: /nowhere"),
        (("--out", "a.pdf"), "ends in .svg or .png"),
        (("--phase", "infer"), "expected at least one accepted result"),
        (("--metric", "gpu_power"), "no result has the metric gpu_power: no accelerator in this run"),
    ],
)
def test_command_states_what_is_wrong(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result(tmp_path)
    assert plot(tmp_path, "--out", str(tmp_path / "a.svg"), *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.svg").exists()


def test_too_many_results_for_a_figure_each_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index in range(13):
        result(tmp_path / "results", hexes=f"{index:08x}", batch=256 + index)
    assert plot(tmp_path / "results", "--metric", "step_trace") == 2
    assert "expected at most 12 results, found 13; name one" in capsys.readouterr().err


def test_png_without_a_font_states_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import resvg_py

    def without_fonts(render: Any) -> Any:
        return lambda **options: render(**options, skip_system_fonts=True)

    result(tmp_path / "results")
    monkeypatch.setattr(resvg_py, "svg_to_bytes", without_fonts(resvg_py.svg_to_bytes))
    assert plot(tmp_path / "results", "--out", str(tmp_path / "a.png")) == 2
    assert "PNG needs one of the fonts DejaVu Sans" in capsys.readouterr().err
