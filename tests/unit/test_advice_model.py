"""The model of the step time: parameters that made the times, intervals of held-out cells, refusals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from suite.advice.advise import Advisor
from suite.advice.memory import Memory
from suite.advice.model import COVERAGE, Point, StepTime, TooFewCells
from tools.advice_evaluation import PROCESSES, Options, evaluate, synthetic

_CPUS, _BATCHES = (1, 2, 4, 8), (32, 64, 128, 256)
_GRID = [Point(cpus, batch) for cpus, batch in itertools.product(_CPUS, _BATCHES)]


def gpu_time(point: Point, *, disk: float = 0.0) -> float:
    """a 4 ms, b 0.1 ms, c 0.5 ms; e 1 ms."""
    loaded = point.batch * point.devices
    compute = max(0.004 + 1e-4 * point.batch, loaded * 5e-4 / point.cpus, loaded * disk)
    return compute + 1e-3 * 2 * (point.devices - 1) / point.devices


def test_parameters_of_an_accelerator_are_found_again() -> None:
    model = StepTime(_GRID, [gpu_time(point) for point in _GRID], processor=False)
    assert model.form == "plain"
    assert model.values == pytest.approx({"a": 0.004, "b": 1e-4, "c": 5e-4}, rel=1e-3)
    inside, edge = model.predict([Point(3, 96), Point(6, 48)])
    assert inside.step_s == pytest.approx(gpu_time(Point(3, 96)), rel=1e-3)
    assert (inside.binds, edge.binds) == ("cpus", "device")


def test_devices_and_a_cold_disk_have_terms_of_their_own() -> None:
    points = [replace(one, devices=devices) for one in _GRID for devices in (1, 2)]
    cold = [replace(one, cache="cold") for one in points if one.cpus > 2]
    times = [gpu_time(point) for point in points] + [gpu_time(point, disk=2e-4) for point in cold]
    model = StepTime([*points, *cold], times, processor=False)
    expected = {"a": 0.004, "b": 1e-4, "c": 5e-4, "e": 1e-3, "s.cold": 2e-4}
    assert model.values == pytest.approx(expected, rel=0.02)
    assert model.predict([Point(8, 200, 1, "cold")])[0].binds == "disk"


def test_on_a_processor_loader_and_model_share_the_cores() -> None:
    times = [0.002 + point.batch * 3e-4 / point.cpus for point in _GRID]
    model = StepTime(_GRID, times, processor=True)
    found = model.predict([Point(3, 100)])[0]
    assert found.step_s == pytest.approx(0.002 + 100 * 3e-4 / 3, rel=1e-3)
    assert found.binds == "cpus"


def test_small_steps_may_be_slower_on_more_threads() -> None:
    """Threads wait for each other at the end of each operation, however small it is."""
    times = [0.002 + 0.005 * math.log2(one.cpus) + one.batch * 3e-4 / one.cpus for one in _GRID]
    model = StepTime(_GRID, times, processor=True)
    assert model.values["h"] == pytest.approx(0.005, rel=1e-2)
    slower, faster = model.predict([Point(3, 4), Point(3, 250)])
    assert slower.step_s == pytest.approx(0.002 + 0.005 * math.log2(3) + 4 * 3e-4 / 3, rel=1e-2)
    assert faster.step_s == pytest.approx(0.002 + 0.005 * math.log2(3) + 250 * 3e-4 / 3, rel=1e-2)
    on_gpu = StepTime(_GRID, [gpu_time(point) for point in _GRID], processor=False)
    assert "h" not in on_gpu.values


def test_a_core_that_the_device_takes_is_found() -> None:
    points = [Point(cpus, batch) for cpus in (1, 2, 3, 4, 6, 8, 16) for batch in (64, 128, 256)]
    noise = np.exp(np.random.default_rng(0).normal(0, 0.01, len(points)))
    times = [max(0.004 + 1e-4 * one.batch, one.batch * 8e-4 / (one.cpus - 0.6)) for one in points]
    model = StepTime(points, [time * float(n) for time, n in zip(times, noise, strict=True)], processor=False)
    assert model.form == "core"
    assert model.values["u"] == pytest.approx(0.6, abs=0.05)


def of_loader(point: Point) -> float:
    """The native loader needs half of the processor time, and the device's: 5 % more."""
    native = point.loader == "native"
    device = (0.004 + 1e-4 * point.batch) * (1.05 if native else 1)
    return max(device, point.batch * (2.5e-4 if native else 5e-4) / point.cpus)


def test_loaders_share_the_device_and_differ_in_the_processors_time() -> None:
    points = [replace(one, loader="dali") for one in _GRID]
    points += [Point(cpus, batch, loader="native") for cpus, batch in ((1, 256), (8, 64))]
    model = StepTime(points, [of_loader(point) for point in points], processor=False)
    expected = {"a": 0.004, "b": 1e-4, "c.dali": 5e-4, "c.native": 2.5e-4, "g.native": 1.05}
    assert model.values == pytest.approx(expected, rel=1e-2)
    assert model.values_of("native") == pytest.approx(
        {"a": 0.004, "b": 1e-4, "c": 2.5e-4, "g": 1.05}, rel=1e-2
    )
    for point in (Point(1, 96, loader="native"), Point(4, 200, loader="native"), Point(3, 96, loader="dali")):
        assert model.predict([point])[0].step_s == pytest.approx(of_loader(point), rel=1e-2)


def test_a_loader_that_never_waits_for_the_device_has_no_factor() -> None:
    points = [replace(one, loader="dali") for one in _GRID]
    points += [Point(cpus, batch, loader="pillow") for cpus, batch in ((1, 64), (2, 256), (4, 128))]
    times = [of_loader(one) if one.loader == "dali" else one.batch * 5e-3 / one.cpus for one in points]
    model = StepTime(points, times, processor=False)
    assert model.values["c.pillow"] == pytest.approx(5e-3, rel=1e-2)
    assert model.values["g.pillow"] == pytest.approx(1, rel=1e-2)


def test_on_a_processor_a_loader_has_no_factor_of_the_device() -> None:
    points = [replace(one, loader=loader) for one in _GRID for loader in ("native", "pillow")]
    work = {"native": 3e-4, "pillow": 6e-4}
    times = [0.002 + one.batch * work[one.loader] / one.cpus for one in points]
    model = StepTime(points, times, processor=True)
    assert "g.pillow" not in model.values
    found = model.predict([Point(3, 100, loader="native"), Point(3, 100, loader="pillow")])
    assert [one.step_s for one in found] == pytest.approx([0.012, 0.022], rel=0.05)


def test_an_interval_is_as_wide_as_the_errors_of_cells_that_the_same_part_limits() -> None:
    """The device's cells repeat, those of the loader do not."""
    random = np.random.default_rng(0)
    points = [Point(cpus, batch) for cpus in (1, 2, 3, 8, 12, 16) for batch in (64, 96, 128, 192, 256)]
    noise = {True: 0.1, False: 0.001}
    times = [gpu_time(one) * math.exp(random.normal(0, noise[one.cpus <= 3])) for one in points]
    loader, device = StepTime(points, times, processor=False).predict([Point(2, 160), Point(10, 160)])
    assert (loader.binds, device.binds) == ("cpus", "device")
    assert loader.high_s / loader.low_s > 1.2
    assert device.high_s / device.low_s < 1.1


def test_not_more_cells_than_parameters_give_no_prediction() -> None:
    corners = [Point(1, 32), Point(8, 256), Point(1, 256)]
    with pytest.raises(TooFewCells, match="at least 4 cells for 3 parameters of the model, found 3"):
        StepTime(corners, [gpu_time(point) for point in corners], processor=False)


def test_fewer_than_nine_cells_have_a_lower_coverage() -> None:
    few = _GRID[::3]
    model = StepTime(few, [gpu_time(point) for point in few], processor=False)
    assert model.coverage == pytest.approx(len(few) / (len(few) + 1))
    assert StepTime(_GRID, [gpu_time(point) for point in _GRID], processor=False).coverage == COVERAGE


def test_a_wider_interval_contains_the_narrow_one() -> None:
    random = np.random.default_rng(1)
    times = [gpu_time(point) * float(np.exp(random.normal(0, 0.03))) for point in _GRID]
    model = StepTime(_GRID, times, processor=False)
    narrow, wide = (model.predict([Point(3, 100)], widen)[0] for widen in (1.0, 2.0))
    assert wide.low_s < narrow.low_s < narrow.step_s < narrow.high_s < wide.high_s


@pytest.mark.parametrize("process", [PROCESSES[0], PROCESSES[-1]])
def test_a_quarter_of_a_grid_predicts_the_rest(process: str) -> None:
    """Of the model itself and of a process that it does not contain, with 2 % of noise."""
    scores = [
        evaluate([synthetic(process, 0.02, seed)], Options(goals=0), draws=1, seed=seed) for seed in (0, 1)
    ]
    errors = [error for score in scores for error in score.errors]
    inside = [one for score in scores for one in score.inside]
    plain = [error for score in scores for error in score.plain]
    assert np.median(errors) < 0.05
    assert np.median(errors) < np.median(plain) / 2
    assert np.mean(inside) >= 0.8


def test_the_cells_of_a_second_loader_help_the_first() -> None:
    """Each has five cells: with those of the other the device's time is known better."""
    grid = synthetic("model", 0.005, 3)
    cells = tuple(replace(cell, step_s=cell.step_s * 1.02) for cell in grid.cells if cell.step_s is not None)
    other = replace(grid, key=grid.key | {"loader": "dali"}, cells=cells)
    scores = [evaluate(groups, Options(share=0.07, goals=0), draws=4) for groups in ([grid], [grid, other])]
    alone, both = (float(np.median(score.errors)) for score in scores)
    assert both < 0.03
    assert both < alone


def test_memory_is_a_line_with_the_largest_error_above_it() -> None:
    memory = Memory.fitted([32, 64, 128], [1_320, 1_640, 2_280])
    assert memory is not None
    assert memory.upper(256) == pytest.approx(3_560 * 1.05, rel=1e-3)
    above = Memory.fitted([32, 64, 128], [1_320, 1_800, 2_280])
    assert above is not None
    assert above.upper(64) >= 1_800
    assert Memory.fitted([], []) is None


def test_groups_of_one_level_are_not_extrapolated_along_it() -> None:
    group = synthetic("model", 0.01, 0)
    one_batch = tuple(cell for cell in group.cells if cell.config.batch == 64)
    advisor = Advisor(replace(group, cells=one_batch))
    row = advisor.row(replace(one_batch[0].config, batch=96))
    assert (row.source, row.per_second) == ("unknown", None)
    assert row.why == "only one batch was measured (64)"
