"""Scaling sets: figures that follow from the logs, their tables and their figure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy import stats

from suite.compare import ratio
from suite.compare.comparable import COMPARE_TASKS
from suite.compare.scaling_set import (
    INDEPENDENT,
    SINGLE,
    STRONG,
    SYNCHRONOUS,
    Failure,
    Group,
)
from suite.compare.submitted_sets import submitted_set_folders
from suite.figures.scaling import scaling
from suite.log.units import significant
from suite.report import scaling_table
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.odd_logs import SETS, write_set
from tests.fixtures.scaling_sets import Imagined, checked, edit_set

ROOT = Path(__file__).parents[2]
SUBMITTED = submitted_set_folders(ROOT / "submissions")
WITH_A_SLOW_RANK = {  # of two H200s, one slower than the other: docs/scaling.md
    f"{name}-pytorch-train-bf16-reference-{which}"
    for name, which in (
        ("alexnet", "weak-5474c19a"),
        ("alexnet", "weak-58f07c48"),
        ("resnet50", "strong-dd1a60ec"),
        ("resnet50", "weak-48f28c80"),
        ("resnet50", "weak-50e351ee"),
    )
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(COMPARE_TASKS) as one:
        yield one


@pytest.mark.parametrize("name", [*SETS, *(path.name for path in SUBMITTED)])
def test_measured_set_is_accepted(name: str, sandbox: Sandbox, tmp_path: Path) -> None:
    """Whole sets on two and four H100s and on two H200s: the figures of docs/scaling.md."""
    submitted = [path for path in SUBMITTED if path.name == name]
    verdict, found = checked(sandbox, submitted[0] if submitted else write_set(name, tmp_path))
    assert verdict.findings == verdict.flags
    assert [one.rule for one in verdict.flags] == (["RANK-020"] if name in WITH_A_SLOW_RANK else [])
    assert all(": repeats 0" in finding.location for finding in verdict.findings)
    assert found.accepted == set(found.set.devices)
    heading = "## Four GPUs, measured" if 4 in found.accepted else "## Two GPUs, measured"
    _, _, documented = (ROOT / "docs/scaling.md").read_text().partition(heading)
    for one in found.figures:
        assert one.synchronisation is not None
        name = f"`{found.set.workload}`" + (" in JAX" if found.set.framework == "jax" else "")
        begin = f"| {name}, {found.set.batch} | {one.devices} |"
        rows = [line for line in documented.split("\n") if line.startswith(begin)]
        values = one.efficiency.value, one.contention.value, one.synchronisation.value
        texts = [scaling_table.percent(value) for value in values]
        assert any(all(text in row for text in texts) for row in rows), (texts, rows)


def test_one_and_two_devices_predict_four_and_eight(sandbox: Sandbox) -> None:
    """t1 + c 2(n - 1)/n, with c fitted on two devices, is at most 5 % off: the table of docs/scaling.md."""
    text = (ROOT / "docs/scaling.md").read_text()
    found = [checked(sandbox, folder)[1] for folder in SUBMITTED]
    both = [one for one in found if one.accepted == {2, 4}]
    assert len(both) >= 6
    for one in both:
        ns = {
            group.devices: {name: arm["repeats"][0]["window_ns"] for name, arm in group.arms.items()}
            for group in one.figures
        }
        alone, measured = (ns[2][SINGLE] + ns[4][SINGLE]) / 2, ns[4][SYNCHRONOUS]
        four, eight = (alone + (ns[2][SYNCHRONOUS] - alone) * 2 * (n - 1) / n for n in (4, 8))
        assert four == pytest.approx(measured, rel=0.05)
        share = scaling_table.percent(alone / eight)
        assert f"| `{one.set.workload}` | {four / 1e9:.3f} s | {measured / 1e9:.3f} s | {share} |" in text


def test_figures_of_an_honest_set_follow_from_its_logs(sandbox: Sandbox, tmp_path: Path) -> None:
    verdict, found = checked(sandbox, Imagined(devices=(2, 3)).write(tmp_path))
    assert verdict.findings == ()
    assert found.accepted == {2, 3}
    for one in found.figures:
        # Each rank computes as much per step as the single device: the times of a step decide.
        assert one.efficiency.value == pytest.approx(2.0 / 2.5, rel=0.02)
        assert one.contention.value == pytest.approx(1 - 2.0 / 2.2, rel=0.1)
        assert one.synchronisation is not None
        assert one.synchronisation.value == pytest.approx(1 - 2.2 / 2.5, rel=0.1)
        kept = (1 - one.contention.value) * (1 - one.synchronisation.value)
        assert one.efficiency.value == pytest.approx(kept, rel=1e-12)
        assert one.efficiency.low < one.efficiency.value < one.efficiency.high
        # The imagined time of a size is 20 µs and half a nanosecond per byte.
        assert float(one.bandwidth.value or 0) == pytest.approx(
            2 * (one.devices - 1) / one.devices * 2e9, rel=0.01
        )


def test_set_of_one_round_states_no_interval(sandbox: Sandbox, tmp_path: Path) -> None:
    name = next(one for one in SETS if "four/alexnet" in one)
    _, found = checked(sandbox, write_set(name, tmp_path))
    assert [one.efficiency.freedom for one in found.figures] == [0.0]
    text, drawn = scaling_table.to_text(found), str(scaling(found))
    assert "no intervals: the set has one round" in text
    assert "[" not in text
    assert "inf" not in drawn
    group = json.loads(scaling_table.to_json(found))["groups"][0]
    for share in (group["efficiency"], group["contention"], group["synchronisation_cost"]):
        assert (share["low"], share["high"]) == (None, None)
        assert "one round" in share["reason"]


def test_inference_has_no_synchronous_arm(sandbox: Sandbox, tmp_path: Path) -> None:
    verdict, found = checked(sandbox, Imagined(phase="infer").write(tmp_path))
    assert verdict.accepted
    (figures,) = found.figures
    assert figures.synchronisation is None
    assert figures.efficiency == figures.shares[INDEPENDENT]
    assert figures.bandwidth.value is None


def test_strong_scaling_divides_the_global_batch(sandbox: Sandbox, tmp_path: Path) -> None:
    verdict, found = checked(sandbox, Imagined(scaling=STRONG).write(tmp_path))
    assert verdict.findings == ()
    assert found.figures[0].efficiency.value == pytest.approx(2.0 / 2.5, rel=0.02)


def test_paired_interval_is_student_t_of_the_differences_relative_to_the_means() -> None:
    a, b = (100.0, 50.0, 80.0, 90.0, 60.0), (91.0, 44.0, 71.0, 83.0, 53.0)
    differences = [5 * y / sum(b) - 5 * x / sum(a) for x, y in zip(a, b, strict=True)]
    low, high = stats.t.interval(0.95, 4, loc=math.log(sum(b) / sum(a)), scale=stats.sem(differences))
    found = ratio.paired(a, b)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    # What slows both repeats of a round cancels: unpaired, the spread of rounds would hide the difference.
    assert found.different
    assert not ratio.welch(a, b).different


def test_unequal_numbers_of_paired_values_are_refused() -> None:
    with pytest.raises(ValueError, match="expected paired values, found 2 and 3 values"):
        ratio.paired((1.0, 2.0), (1.0, 2.0, 3.0))


# ---- tables and figure -------------------------------------------------------------------------------------
def test_table_and_json_show_the_same_figures(sandbox: Sandbox, tmp_path: Path) -> None:
    _, found = checked(sandbox, Imagined().write(tmp_path))
    text, value = scaling_table.to_text(found), json.loads(scaling_table.to_json(found))
    (group,) = value["groups"]
    for name in ("efficiency", "contention", "synchronisation_cost"):
        ratio_ = group[name]
        shown = f"{100 * ratio_['value']:.1f} % [{100 * ratio_['low']:.1f}, {100 * ratio_['high']:.1f}]"
        assert shown in text
        assert shown.replace("[", r"\[").replace("]", r"\]") in scaling_table.to_markdown(found)
    assert scaling_table.ON_PROCESSORS in text
    assert "null" in text
    assert group["arms"][SINGLE]["gpu_power_w"] == {"value": None, "reason": "no accelerator in this run"}


def test_narrow_table_keeps_its_words_whole(sandbox: Sandbox, tmp_path: Path) -> None:
    _, found = checked(sandbox, Imagined(scale="reference").write(tmp_path))
    text = scaling_table.to_text(found, 80)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("independent", "synchronous", "contention", "synchronisation"):
        assert words in text
    assert "2 independent: " in text


def test_table_of_gpus_has_clock_and_power_of_each_arm(sandbox: Sandbox, tmp_path: Path) -> None:
    _, found = checked(sandbox, Imagined(scale="reference").write(tmp_path))
    text = scaling_table.to_text(found)
    assert text.count("1,980 MHz") == 3
    assert text.count("400 W") == 3
    assert scaling_table.ON_PROCESSORS not in text


def test_failed_group_is_named_in_the_table(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = Imagined(devices=(2, 3)).write(tmp_path)
    edit_set(folder, lambda one: one.with_group(Group(3, {}, Failure(21, "out_of_memory in repeat 0"))))
    _, found = checked(sandbox, folder)
    assert "exit code 21: out_of_memory in repeat 0" in scaling_table.to_text(found)


def test_figure_is_drawn_and_equal_sets_give_equal_files(sandbox: Sandbox, tmp_path: Path) -> None:
    _, found = checked(sandbox, Imagined(devices=(2, 3)).write(tmp_path))
    figure = scaling(found)
    drawn = figure.file()
    assert drawn == scaling(found).file()
    for text in ("ideal", "contention", "synchronisation", "weak scaling"):
        assert text in drawn
    shares = {(name, one.devices): share for one in found.figures for name, share in one.shares.items()}
    rows = {(row[0].partition(":")[0], row[1]): row[2:] for row in figure.table.rows}
    for (name, devices), share in shares.items():
        shown = tuple(significant(100 * value) for value in (share.value, share.low, share.high))
        assert rows[name, str(devices)] == shown
