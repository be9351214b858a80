"""The advice: goals and grids as given, what suffices, what is refused, and the command on real logs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from suite.advice import text
from suite.advice.advise import Advisor, Row, Verdict, best_batches
from suite.advice.cells import Cell, Config, Group, merge, read_groups
from suite.advice.goal import Goal, GoalError, read_goal, read_grid
from suite.advice.next_cells import kinks, undecided
from suite.advice.prices import Machine, Prices
from suite.advice.report import Answer, answer_of, command_of, fewest_devices, pivot
from suite.cli import main
from suite.report.compare_text import to_text
from suite.site.html import join
from suite.site.pages import advice as advice_page
from tests.fixtures.good_log import MINI, REFERENCE, Good, reference, write_good

KEY: dict[str, Any] = {
    "workload": "resnet50", "variant": "v1.5", "framework": "pytorch", "phase": "train",
    "scenario": "offline", "precision": "bf16", "scale": "reference", "nodes": 1, "data": "real",
    "loader": "native", "storage": "files", "strategy": None,
}  # fmt: skip
GIB = 1 << 30


def cell(cpus: float, batch: int, devices: int = 1, **changes: Any) -> Cell:
    """A cell of an H200 whose step takes max(2 ms + 0.1 ms B, 0.6 ms B d / cpus), with an interval of 1 %."""
    device, host = 0.002 + 1e-4 * batch, 6e-4 * batch * devices / cpus
    time = max(device, host)
    rate = batch * devices / time
    made = Cell(
        Config(cpus, batch, devices, 64 * GIB),
        time,
        rate * 0.99,
        rate * 1.01,
        float(batch * devices),
        device_memory_bytes=int((1 + batch / 16) * GIB),
        host_memory_bytes=int((2 + batch * devices / 128) * GIB),
        input_wait_percent=100 * max(0.0, 1 - device / host),
        joules_per_unit=0.1,
        run_ids=("run",),
    )
    return replace(made, **changes)


def out_of_memory(cpus: float, batch: int, devices: int = 1, memory: int | None = None) -> Cell:
    return Cell(Config(cpus, batch, devices, memory), None, run_ids=("run-oom",))


def group(*cells: Cell, **changes: Any) -> Group:
    made = Group(KEY, "images", "NVIDIA H200", processor=False, cells=merge(cells), capacity_bytes=140 * GIB)
    return replace(made, **changes)


@pytest.fixture(scope="module")
def advisor() -> Advisor:
    """Of one device, with 1, 4 and 16 processors and three batches; 1,024 ran out of memory."""
    cells = [cell(cpus, batch) for cpus in (1, 4, 16) for batch in (32, 128, 512)]
    return Advisor(group(*cells, out_of_memory(16, 1024)))


def asked(
    advisor: Advisor, goal: str, grid: str = "", prices: Prices | None = None, epoch: float | None = None
) -> Answer:
    axes = read_grid(grid)
    return answer_of([(advisor, advisor.rows(axes, prices))], read_goal(goal), epoch, axes, prices)


def prices_of(*machines: Machine) -> Prices:
    return Prices(machines, "USD", ("made up",), datetime.now(UTC).date(), "0" * 64)


def found(answer: Answer) -> Row:
    assert answer.smallest is not None
    return answer.smallest[1]


def test_goals_are_read_or_refused_in_one_sentence() -> None:
    assert read_goal("throughput>=2000") == Goal("throughput", 2000.0)
    assert read_goal(" cost <= 1.50 ") == Goal("cost", 1.5)
    for wrong in ("throughput<=2000", "speed>=1", "cost<=-1", "epoch<=0", "throughput>=", "cost<=1e999"):
        with pytest.raises(GoalError, match=r"GOAL: expected"):
            read_goal(wrong)


def test_grids_are_read_or_refused_in_one_sentence() -> None:
    assert read_grid("runtime.cpus=1,2 batch=32") == {"runtime.cpus": ("1", "2"), "batch": ("32",)}
    wide = " ".join(
        f"{name}={','.join(map(str, range(1, 101)))}" for name in ("batch", "devices", "runtime.cpus")
    )
    for wrong, why in (
        (wide, "at most 2,000 cells, found 1,000,000"),
        ("speed=1", "expected axes among"),
        ("batch=0", "batch: expected a whole number above 0, found '0'"),
        ("runtime.memory=lots", "a size such as 8g"),
        ("batch=1 batch=2", "expected batch once"),
        ("runtime.cpus=1 framework.threads=1", "expected one of"),
    ):
        with pytest.raises(GoalError, match=why):
            read_grid(wrong)


def test_threads_of_a_grid_are_those_of_a_device() -> None:
    advisor = Advisor(group(cell(4, 128)))
    configs = advisor.configs(read_grid("framework.threads=2 batch=128 devices=1,2"))
    assert [(one.devices, one.cpus) for one in configs] == [(1, 2.0), (2, 4.0)]


def test_groups_that_differ_in_the_loader_alone_share_a_model() -> None:
    cells = [cell(cpus, batch) for cpus, batch in ((1, 32), (4, 128), (16, 512), (16, 32))]
    native = group(*cells)
    dali = group(*cells[:2], key=KEY | {"loader": "dali"})
    alone, shared = Advisor(dali), Advisor(dali, [native, dali])
    assert alone.model is None
    assert "at least 4 cells for 3 parameters of the model, found 2" in alone.no_model
    assert shared.model is Advisor(native, [native, dali]).model
    row = shared.row(Config(4, 100, 1, 64 * GIB))
    assert row.source == "predicted"
    assert row.per_second == pytest.approx(100 / max(0.012, 0.015), rel=0.05)
    assert "model: 2 cells and 4 of other loaders; " in text.model_text(shared)
    assert "processors work on each sample for 600 µs (c)" in text.model_text(shared)
    assert "(g)" not in text.model_text(shared)
    of_native = text.model_text(Advisor(native, [native, dali]))
    assert "with this loader the device takes 1 times as long as with dali (g)" in of_native
    other_device = replace(native, device="NVIDIA H100")
    assert Advisor(dali, [other_device, dali]).model is None


def test_the_closest_configuration_where_none_surely_reaches_the_goal(advisor: Advisor) -> None:
    rate = next(one.per_second for one in advisor.timed if one.config == Config(16, 512, 1, 64 * GIB))
    assert rate is not None
    goal = f"throughput>={rate * 1.005:.1f}"  # within the interval of 1 %
    answer = asked(advisor, goal)
    assert answer.smallest is None
    assert answer.closest is not None
    assert answer.closest[1].config == Config(16, 512, 1, 64 * GIB)
    lines = text.answer_lines(answer, read_goal(goal), None, None)
    assert [config for _, config in answer.next_cells] == [answer.closest[1].config]
    assert lines[0] == f"no configuration surely reaches {goal}"
    assert lines[1].startswith(
        "smallest whose rate is at least 99 % of it: 16 processors, 1 device, batch 512"
    )
    assert asked(advisor, f"throughput>={rate * 1.5:.1f}").closest is None
    assert asked(advisor, "throughput>=100").closest is None


def test_the_smallest_configuration_that_surely_reaches_the_goal(advisor: Advisor) -> None:
    """The device gives 32 / 5.2 ms = 6,154 to 512 / 53.2 ms = 9,624 images/s, a processor 1,667 of them."""
    answer = asked(advisor, "throughput>=6000", "runtime.cpus=1,2,3,4,5,6,8,16")
    row = found(answer)
    assert (row.config.cpus, row.source, row.binds) == (4, "measured", "device")
    assert asked(advisor, "throughput>=1000").smallest is not None
    predicted = found(asked(advisor, "throughput>=3000", "runtime.cpus=1,2,3,4"))
    assert (predicted.config.cpus, predicted.source) == (2, "predicted")
    assert predicted.per_second == pytest.approx(2 * 1667, rel=0.02)


def test_without_intervals_the_faster_batch_is_the_best() -> None:
    cells = [cell(4, batch, low_per_s=None, high_per_s=None) for batch in (32, 128)]
    best = best_batches([Advisor(group(*cells)).row(one.config) for one in cells])
    assert [row.config.batch for row in best] == [128]


def test_the_answer_names_the_batch_of_the_table_where_cells_have_no_interval() -> None:
    """Both are the faster of two cells of one size, also beside a slower one that has an interval."""
    none: dict[str, Any] = {"low_per_s": None, "high_per_s": None, "host_memory_bytes": None}
    slow, fast = cell(4, 128, step_s=0.0160, **none), cell(4, 256, step_s=0.0319, **none)
    known = cell(4, 64, step_s=0.0128, low_per_s=4_950.0, high_per_s=5_050.0)
    for cells in ((slow, fast), (known, fast)):  # too few for a model, which would give them an interval
        advisor = Advisor(group(*cells))
        answer = asked(advisor, "throughput>=7990")
        assert answer.smallest is None
        assert answer.closest is not None
        (row,) = best_batches(advisor.rows({}, None))
        assert row.config == answer.closest[1].config == fast.config


def test_the_table_shows_the_batch_that_surely_reaches_the_goal() -> None:
    """Not a faster one of a single repeat, of which that is not known."""
    known = cell(4, 64, step_s=0.0128, low_per_s=4_950.0, high_per_s=5_050.0)
    single = cell(4, 128, step_s=0.0160, low_per_s=None, high_per_s=None)
    advisor = Advisor(group(known, single))
    rows = advisor.rows({}, None)
    assert [row.config.batch for row in best_batches(rows)] == [128]
    assert [row.config.batch for row in best_batches(rows, read_goal("throughput>=4900"))] == [64]
    assert found(asked(advisor, "throughput>=4900")).config.batch == 64
    assert re.search(r"^ *4 +64 .* yes$", shown(advisor, "throughput>=4900"), re.MULTILINE)


def test_a_cell_of_one_repeat_has_the_interval_of_the_model_around_its_rate() -> None:
    """Without an interval no measured cell would suffice, and a prediction for more processors would win."""
    cells = [
        cell(cpus, batch, low_per_s=None, high_per_s=None) for cpus in (1, 4, 16) for batch in (32, 128, 512)
    ]
    single = Advisor(group(*cells))
    measured = single.row(cells[4].config)
    rate = cells[4].per_second or 0
    assert (measured.source, measured.per_second) == ("measured", rate)
    assert 0.9 * rate < (measured.low or 0) < rate < (measured.high or 0) < 1.1 * rate
    row = found(asked(single, "throughput>=6000", "runtime.cpus=4,5,6,8,16"))
    assert (row.config.cpus, row.source) == (4, "measured")
    few = Advisor(group(*cells[:2]))  # too few cells for a model
    assert few.row(cells[0].config).low is None


def test_cells_that_differ_in_memory_alone_keep_their_own_results() -> None:
    """Their rows showed the result and the run of one of them. Other memory has their mean."""
    small, large, other = Config(16, 256, 1, 64 * GIB), Config(16, 256, 1, 128 * GIB), Config(8, 256)
    first = cell(16, 256, step_s=0.010, run_ids=("first",))
    second = cell(16, 256, config=large, step_s=0.008, run_ids=("second",))
    third = cell(8, 256, config=other, run_ids=("third",))
    advisor = Advisor(group(first, second, third))
    rows = [row for row in advisor.rows({}, None) if row.source == "measured"]
    # No row of 8 processors has the memory of another cell.
    assert [(row.config, row.run_ids) for row in rows] == [
        (other, ("third",)), (small, ("first",)), (large, ("second",)),
    ]  # fmt: skip
    assert [row.per_second for row in rows] == pytest.approx([third.per_second, 25_600, 32_000])
    mean = advisor.row(replace(small, memory_bytes=32 * GIB))
    assert (mean.source, mean.run_ids) == ("measured", ("first", "second"))
    assert 25_600 < (mean.per_second or 0) < 32_000


def test_a_run_of_several_repeats_has_the_interval_of_both() -> None:
    """Otherwise the answer to "run it again" would be to run it again."""
    once, several = cell(4, 128, low_per_s=None, high_per_s=None), cell(4, 128)
    (both,) = merge([once, several])
    assert (both.low_per_s, both.high_per_s) == pytest.approx((several.low_per_s, several.high_per_s))


def test_what_no_configuration_reaches_is_said_and_nothing_useless_is_measured(advisor: Advisor) -> None:
    answer = asked(advisor, "throughput>=50000")
    assert (answer.smallest, answer.next_cells) == (None, ())


def test_batches_that_ran_out_of_memory_are_never_advised(advisor: Advisor) -> None:
    for batch in (1024, 2048):
        row = advisor.row(Config(16, batch, 1, 64 * GIB))
        assert (row.source, row.per_second) == ("OOM", None)
        assert row.why == "batch 1024 ran out of memory (run-oom)"


def test_predicted_peaks_that_do_not_fit_are_not_advised() -> None:
    cells = [cell(cpus, batch) for cpus in (4, 16) for batch in (128, 512)]
    small_device = Advisor(group(*cells, capacity_bytes=40 * GIB))
    assert small_device.row(Config(16, 512, 1, 64 * GIB)).source == "measured"
    assert small_device.row(Config(16, 640, 1, 64 * GIB)).source == "OOM"
    little_host = Advisor(group(*cells)).row(Config(8, 512, 1, 6 * GIB))
    assert (little_host.source, "the ranks need more memory" in little_host.why) == ("OOM", True)


def test_no_extrapolation_where_the_host_binds() -> None:
    """With 1 and 2 processors every cell waits for input: neither more processors nor devices follow."""
    advisor = Advisor(group(*(cell(cpus, batch) for cpus in (1, 2) for batch in (32, 128, 512))))
    row = advisor.row(Config(8, 128, 1, 64 * GIB))
    assert (row.source, row.per_second) == ("unknown", None)
    assert "the host binds" in row.why
    assert advisor.row(Config(0.5, 128, 1, 64 * GIB)).why.startswith("fewer processors than measured")


def test_more_processors_than_measured_help_no_device_that_is_busy(advisor: Advisor) -> None:
    row = advisor.row(Config(32, 128, 1, 64 * GIB))
    assert (row.source, row.binds) == ("extrapolated", "device")
    assert row.per_second == pytest.approx(128 / 0.0148, rel=0.02)


def test_the_kink_is_where_loader_and_device_are_equally_fast(advisor: Advisor) -> None:
    """Batch 128: 14.8 ms on the device, 76.8 ms of a processor."""
    assert advisor.kink(128, 1) == pytest.approx(76.8 / 14.8, rel=0.02)
    around = kinks(advisor, read_grid("runtime.cpus=1,2,3,4,5,6,8 batch=128"))
    assert sorted(config.cpus for config in around) == [5, 6]


def test_too_few_cells_ask_for_the_corners_first() -> None:
    few = Advisor(group(cell(4, 128)))
    answer = asked(few, "throughput>=9000", "runtime.cpus=1,4,16 batch=32,128,512")
    assert answer.smallest is None
    corners = {(config.cpus, config.batch) for _, config in answer.next_cells}
    assert corners == {(1, 32), (1, 512), (16, 32), (16, 512)}
    assert answer.why_next == "a model of these configurations needs at least 4 cells, found 1"
    assert answer.next_commands[0] == (
        "make run WORKLOAD=resnet50 FRAMEWORK=pytorch PHASE=train PRECISION=bf16 SCALE=reference DATA=real "
        "VARIANT=v1.5 STORAGE=files BATCH=32 ARGS=runtime.cpus=1"
    )


def test_a_measured_cell_suffices_without_a_model() -> None:
    answer = asked(Advisor(group(cell(4, 128))), "throughput>=6000", "runtime.cpus=1,4,16 batch=32,128,512")
    assert (found(answer).source, found(answer).config.cpus) == ("measured", 4)
    assert len(answer.next_cells) == 4


def test_a_native_command_sets_threads_and_quotes_what_a_log_states() -> None:
    native = group(cell(4, 128), key={**KEY, "variant": "$(x)"}, host={"runtime": "native"})
    command = command_of(native, Config(4, 128, 2, cache="cold"))
    assert "'VARIANT=$(x)'" in command
    # Without RUNTIME a machine with an engine and a GPU would measure the next cell in a container.
    assert command.endswith("BATCH=128 DEVICES=2 CACHE=cold RUNTIME=native ARGS=framework.threads=2")


def test_the_cheapest_machine_need_not_be_the_smallest(advisor: Advisor) -> None:
    dear = Machine("dear", "H200", 1, 4, 64 * GIB, 9.0)
    cheap = Machine("cheap", "H200", 1, 8, 64 * GIB, 3.0)
    slow = Machine("slow", "H200", 1, 1, 64 * GIB, 1.0)
    other = Machine("other", "H100", 1, 16, 64 * GIB, 0.1)
    answer = asked(advisor, "throughput>=6000", prices=prices_of(dear, cheap, slow, other))
    assert answer.smallest is not None
    assert answer.cheapest is not None
    names = [row.machine.name for _, row in (answer.smallest, answer.cheapest) if row.machine]
    assert names == ["dear", "cheap"]
    row = answer.cheapest[1]
    assert row.cost(1e6, row.per_second) == pytest.approx(3.0 / 3600 * 1e6 / (row.per_second or 0))


def test_the_cheapest_for_a_goal_of_an_epoch_has_the_lowest_cost_of_the_work(advisor: Advisor) -> None:
    """One processor gives 1,667 images/s, 16 give 9,624: three times the price for 5.8 times the work."""
    slow = Machine("slow", "H200", 1, 1, 64 * GIB, 1.0)
    fast = Machine("fast", "H200", 1, 16, 64 * GIB, 3.0)
    for goal, name in (("throughput>=1000", "slow"), ("cost<=10", "fast"), ("epoch<=3600", "fast")):
        answer = asked(advisor, goal, prices=prices_of(slow, fast), epoch=1e6)
        assert answer.cheapest is not None
        assert answer.cheapest[1].machine is not None
        assert answer.cheapest[1].machine.name == name, goal
        assert found(answer).config.cpus == 1


def test_a_machine_that_may_cost_less_for_the_work_is_measured_though_it_costs_more_per_hour() -> None:
    """The prediction for 8 processors may be twice as fast as 2 measured ones, at 1.5 times the price."""
    known = Row(Config(2, 128), "measured", Machine("a", "H200", 1, 2, GIB, 1.0), 1000.0, 990.0, 1010.0)
    wide = Row(Config(8, 128), "predicted", Machine("b", "H200", 1, 8, GIB, 1.5), 1500.0, 900.0, 2000.0)
    advisor = Advisor(group(cell(4, 128)))
    best = (advisor, known)
    rows = [(known, Verdict(surely=True, possibly=True)), (wide, Verdict(surely=False, possibly=True))]
    assert undecided(rows, best, best, of_work=True) == [wide]
    assert undecided(rows, best, best) == []


def shown(advisor: Advisor, goal: str, grid: str = "", prices: Prices | None = None, **more: Any) -> str:
    """What the command prints, commands apart."""
    advised = [(advisor, advisor.rows(read_grid(grid), prices))]
    epoch = more.get("epoch")
    answer = asked(advisor, goal, grid, prices, epoch)
    parts = [*text.blocks(advised, read_goal(goal), epoch, prices)]
    parts += text.sentences(text.answer_lines(answer, read_goal(goal), epoch, prices))
    return to_text(parts, 300)


def test_a_goal_that_cannot_be_judged_is_not_denied(advisor: Advisor) -> None:
    """Neither "no" in a row nor "none of them can": the units of an epoch, or a machine, is missing."""
    machines = prices_of(Machine("one", "H200", 1, 16, 64 * GIB, 3.0))
    out = shown(advisor, "cost<=1", prices=machines)
    assert "cost<=1 needs the images of an epoch, which the rules do not state: EPOCH=N" in out
    assert re.search(r"one .* -$", out, re.MULTILINE)
    assert "none of them can" not in out
    other = prices_of(Machine("other", "H100", 1, 16, 64 * GIB, 3.0))
    out = shown(advisor, "throughput>=1000", prices=other)
    assert "throughput>=1000 is not judged, because no machine of the price file fits these results" in out
    assert "none of them can" not in out
    on_processor = Advisor(group(cell(4, 128), processor=True, device="A CPU"))
    out = shown(on_processor, "throughput>=1000", prices=other)
    assert "no machine of the price file is without accelerators" in out


def test_machines_with_other_devices_are_counted(advisor: Advisor) -> None:
    fits = Machine("one", "H200", 1, 16, 64 * GIB, 3.0)
    others = [Machine(f"other-{at}", "H100", 1, 16, 64 * GIB, 3.0) for at in range(2)]
    line = "of the price file with other devices"
    assert f"left out: 2 machines {line}" in shown(advisor, "throughput>=1", prices=prices_of(fits, *others))
    assert line not in shown(advisor, "throughput>=1", prices=prices_of(fits))


def test_a_goal_in_seconds_is_answered_in_seconds(advisor: Advisor) -> None:
    """9,624 images/s: 1e6 images take 103.9 s, which "2 min" would hide."""
    out = shown(advisor, "epoch<=110", "runtime.cpus=16 batch=512", epoch=1e6)
    assert "s/epoch" in out
    assert "images/s (9.528k-9.72k), 103.9 s for an epoch, measured" in out


def test_a_row_of_which_nothing_is_known_names_no_batch() -> None:
    out = shown(Advisor(group(cell(4, 128))), "throughput>=9000", "runtime.cpus=1,4 batch=32,128")
    assert re.search(r"^ *1 +- +- +- +unknown", out, re.MULTILINE)
    assert "model: 1 cell, too few for a prediction" in out


def test_synthetic_data_are_said_to_leave_the_host_out(advisor: Advisor) -> None:
    key = {**KEY, "data": "synthetic"}
    assert "synthetic data: nothing is read or decoded" in shown(
        Advisor(group(cell(4, 128), key=key)), "throughput>=1"
    )
    assert "synthetic data" not in shown(advisor, "throughput>=1")


def test_processors_do_not_limit_synthetic_data_on_a_gpu() -> None:
    """Larger machines have more processors and more devices: 16 seemed to limit two devices."""
    cells = [
        cell(cpus, batch, devices, step_s=0.002 + 1e-4 * batch, input_wait_percent=0.0)
        for cpus, devices in ((16, 1), (64, 4))
        for batch in (128, 256, 512)
    ]
    advisor = Advisor(group(*cells, key={**KEY, "data": "synthetic"}))
    assert "processors work on each sample" not in text.model_text(advisor)
    row = advisor.row(Config(16, 512, 4, 64 * GIB))
    assert (row.source, row.binds) == ("predicted", "device")
    assert row.per_second == pytest.approx(4 * 512 / 0.0532, rel=0.02)
    assert "fewer processors than measured" in advisor.row(Config(8, 512, 4, 64 * GIB)).why
    assert "processors work on each sample" in text.model_text(Advisor(group(*cells)))
    few = Advisor(group(*cells[:1], key={**KEY, "data": "synthetic"}))
    answer = asked(few, "throughput>=20000", "runtime.cpus=16,64 batch=128,512 devices=1,4")
    assert answer.why_next == "a model of these configurations needs at least 4 cells, found 1"


def test_a_goal_of_cost_needs_the_units_of_an_epoch(advisor: Advisor) -> None:
    goal = Goal("cost", 1.0)
    assert goal.least_rate(None, 3.0) is None
    assert goal.least_rate(3_600_000, 2.0) == pytest.approx(2000)
    assert goal.least_rate(3_600_000, None) is None
    assert Goal("epoch", 600.0).least_rate(1_200_000, None) == 2000


def test_runs_of_one_configuration_are_one_cell() -> None:
    first, second = cell(4, 128), cell(4, 128, step_s=0.0212, run_ids=("again",))
    (both,) = merge([first, second])
    assert both.step_s == pytest.approx(((first.step_s or 0) * 0.0212) ** 0.5)
    assert both.run_ids == ("run", "again")
    (failed,) = merge([first, replace(out_of_memory(4, 128), config=first.config)])
    assert failed.step_s is None


def test_the_pivot_names_the_fewest_devices_that_hold_a_global_batch() -> None:
    cells = [cell(16, batch, devices) for batch in (128, 256, 512) for devices in (1, 2)]
    advisor = Advisor(group(*cells, out_of_memory(16, 1024)))
    table = pivot(advisor.rows({}, None))
    assert table[1024][1].source == "OOM"
    assert table[512][2].source == "measured"
    assert fewest_devices(table) == {1024: 2}


# ---------------------------------------------------------------------------------- the command, on logs
@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mini runs of NCF with four batches, 2 ms + 4 µs a sample; batch 4,096 ran out of memory."""
    folder = tmp_path_factory.mktemp("results")
    for number, batch in enumerate((128, 256, 512, 1024)):
        key = replace(MINI, batch=batch)
        write_good(folder, Good(key=key, step_ns=2_000_000 + 4_000 * batch, run_hex=f"0a1b2c3{number}"))
    write_good(folder, Good(key=replace(MINI, batch=4096), run_hex="0a1b2c3f", out_of_memory_in=0))
    return folder


def test_the_command_reads_logs_and_prints_an_answer(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["advise", "--workload", "ncf", "--results-dir", str(results), "--goal", "throughput>=100000"]
    )
    out = capsys.readouterr().out
    assert code == 0
    assert "smallest that reaches throughput>=100000: " in out
    assert "4 cells and 1 out of memory" in out
    assert "OOM: batch 4096 ran out of memory" in out


def test_json_has_every_row_with_a_reason_for_each_null(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--workload", "ncf", "--results-dir", str(results), "--grid", "batch=128,700,4096"]
    assert main(["advise", *options, "--format", "json", "--epoch", "1e6"]) == 0
    (found_group,) = json.loads(capsys.readouterr().out)["groups"]
    rows = {row["batch"]: row for row in found_group["rows"]}
    assert len(found_group["logs"]) == 5
    assert rows[700]["source"] == "predicted"
    assert rows[700]["per_second"] == pytest.approx(700 / 4.8e-3, rel=0.05)
    assert rows[700]["epoch_s"] == pytest.approx(1e6 / rows[700]["per_second"])
    assert rows[128]["reasons"]["joules_per_unit"] == "no accelerator in this run"
    for row in rows.values():
        assert {"joules_per_unit", "cost"} <= row["reasons"].keys()
    assert rows[4096]["reasons"]["per_second"].startswith("batch 4096 ran out of memory")


def test_json_states_why_a_goal_is_not_judged(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workload", "ncf", "--results-dir", str(results), "--goal", "epoch<=60"]
    assert main(["advise", *options, "--format", "json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["smallest"] is None
    assert answer["problem"].startswith("needs the samples of an epoch")
    assert main(["advise", *options, "--format", "json", "--epoch", "1000"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["smallest"]["epoch_s"] < 60
    assert answer["problem"] is None


@pytest.mark.parametrize(
    ("step_ns", "over"), [(2_000_000, "s of untimed steps"), (25_000_000, "over 5 windows")]
)
def test_energy_states_over_what_it_was_counted(tmp_path: Path, step_ns: int, over: str) -> None:
    write_good(tmp_path, reference(step_ns=step_ns))
    (only,), unused = read_groups([tmp_path], workload=["ncf"])
    (one,) = only.cells
    assert unused == []
    assert (only.device, only.processor, only.epoch_units) == ("NVIDIA H200", False, None)
    assert one.no_energy == ""
    assert over in one.energy_from
    assert one.joules_per_unit == pytest.approx(400 * step_ns / 1e9 / REFERENCE.batch, rel=0.02)  # 400 W
    assert one.units_per_step == pytest.approx(REFERENCE.batch)


def test_a_rejected_result_is_named_and_not_used(tmp_path: Path) -> None:
    write_good(tmp_path, Good())
    (log,) = tmp_path.glob("*/run.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"threads":2', b'"threads":4', 1))
    groups, unused = read_groups([tmp_path], workload=["ncf"])
    assert groups == []
    assert len(unused) == 1
    assert "rejected" in unused[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workload", "gnmt"], "expected at least one accepted result"),
        (["--workload", "ncf", "--data", "synthetic"], "(workload ncf, data synthetic)"),
        (
            ["--workload", "ncf", "--precision", "bf16", "--data", "synthetic"],
            "make run WORKLOAD=ncf FRAMEWORK=pytorch PRECISION=bf16 DATA=synthetic`",
        ),
        (["--workload", "ncf", "--phase", "load"], "PHASE: expected train or infer, found load"),
        (["--workload", "ncf", "--framework", "pytroch"], "found 'pytroch' (did you mean pytorch?)"),
        (["--workload", "ncf", "--goal", "cost<=1"], "a cost needs the prices of machines"),
        (["--workload", "ncf", "--epoch", "-1"], "EPOCH: expected a number above 0, found -1"),
        (["--workload", "ncf", "--goal", "faster"], "GOAL: expected one such as"),
        (["--workload", "ncf", "--prices", "/nowhere/prices.csv"], "cannot be read"),
        (["--workload", "ncf", "--prices", "/nowhere/prices.csv"], "docs/prices-example.csv is an example"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    results: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", *options, "--results-dir", str(results)]) == 2
    assert message in capsys.readouterr().err


def test_without_results_the_error_names_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--workload", "ncf", "--phase", "infer", "--results-dir", str(tmp_path / "none")]
    assert main(["advise", *options]) == 2
    assert "`make run WORKLOAD=ncf FRAMEWORK=pytorch PHASE=infer`" in capsys.readouterr().err


def test_the_answer_names_the_device() -> None:
    """Groups of several devices compete for one goal: "16 processors, 1 device" may be that of any."""
    slower = cell(16, 512, step_s=0.08)
    groups = [group(cell(16, 512)), group(slower, device="NVIDIA H100")]
    advisors = [Advisor(one, groups) for one in groups]
    goal = read_goal("throughput>=9000")
    answer = answer_of([(one, one.rows({}, None)) for one in advisors], goal, None, {}, None)
    (line,) = text.answer_lines(answer, goal, None, None)
    assert "16 processors, 1 device, batch 512" in line
    assert " in pytorch on NVIDIA H200: 9,624 images/s" in line
    table = join(advice_page._advice(advisors, "ids")).partition("</table>")[0]
    assert ">device model</th>" in table
    assert "<td>NVIDIA H200</td>" in table


def test_the_site_names_the_loader_of_a_choice_between_loaders() -> None:
    cells = [cell(cpus, batch) for cpus in (1, 4, 16) for batch in (32, 128, 512)]
    slower = [replace(one, config=replace(one.config, cpus=one.config.cpus + 1)) for one in cells]
    groups = [group(*slower), group(*cells, key=KEY | {"loader": "dali"})]
    table = join(advice_page._advice([Advisor(one, groups) for one in groups], "ids")).partition("</table>")[
        0
    ]
    assert ">loader</th>" in table
    assert table.count("<td>dali</td>") == 3
    alone = join(advice_page._advice([Advisor(groups[0])], "ids")).partition("</table>")[0]
    assert ">loader</th>" not in alone
