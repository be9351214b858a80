"""Energy per unit of work: over windows, over untimed steps, of the devices and of the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.log.model import Record
from suite.log.reader import read_result
from suite.metrics.energy import DEVICES, NODE, energy_per_unit
from suite.metrics.run import metrics_of
from suite.telemetry.rapl import Rapl
from suite.telemetry.reading import Unavailable
from tests.fixtures.forged import pick
from tests.fixtures.forging import rewrite
from tests.fixtures.good_log import MINI, REFERENCE, Good, reference, write_good

LONG_NS, SHORT_NS = 25_000_000, 2_000_000
WATTS = 400  # of the imagined device


def made(folder: Path, good: Good, edit: Any = None) -> Record:
    path = write_good(folder, good)
    return read_result(path if edit is None else rewrite(path, edit))


def with_rapl(watts: int | None) -> Any:
    """Add the energy of processors and memory to every reading."""

    def edit(events: Any) -> None:
        for event in events:
            data = event["data"]
            if event["kind"] == "telemetry":
                data["host"]["energy_uj"] = watts and data["offset_ns"] * watts // 1000
                if watts is None and data["source"] == "counters":
                    data["reasons"]["host.energy_uj"] = "permission denied"
            if watts is None and event["kind"] == "repeat_end":
                data["reasons"]["telemetry.host.energy_uj"] = "permission denied"

    return edit


@pytest.mark.parametrize(
    ("step_ns", "over"), [(LONG_NS, "over 5 windows"), (SHORT_NS, "because a window lasts 0.2 s")]
)
def test_energy_is_power_times_the_time_of_a_unit(tmp_path: Path, step_ns: int, over: str) -> None:
    found = energy_per_unit(made(tmp_path, reference(step_ns=step_ns)), DEVICES, "sample")
    wanted = WATTS * step_ns / 1e9 / REFERENCE.batch
    assert found.metric.value == pytest.approx(wanted, rel=0.02)
    assert found.metric.unit == "J/sample"
    assert found.metric.note.endswith(over)
    assert found.repeats == pytest.approx([wanted] * 5, rel=0.05)


@pytest.mark.parametrize(
    ("step_ns", "over"), [(LONG_NS, "over 5 windows"), (SHORT_NS, "because a window lasts 0.2 s")]
)
def test_power_of_a_short_window_is_that_of_the_untimed_steps(
    tmp_path: Path, step_ns: int, over: str
) -> None:
    """A counter that moves every 100 ms hardly moves in a window of a few milliseconds."""

    def stand_still(events: Any) -> None:
        for repeat in range(5):
            opened, closed = (
                one["data"]["devices"][0]
                for one in events
                if one["kind"] == "telemetry"
                and one["repeat"] == repeat
                and one["data"]["source"] == "counters"
            )
            closed["energy_mj"] = opened["energy_mj"]

    edit = stand_still if step_ns == SHORT_NS else None
    found = metrics_of(made(tmp_path, reference(step_ns=step_ns), edit))["gpu_power_w"]
    assert found.value == pytest.approx(WATTS, rel=0.02)
    assert found.note.endswith(over)


def test_counters_of_the_same_time_give_no_energy(tmp_path: Path) -> None:
    def at_once(events: Any) -> None:
        for one in events:
            if one["kind"] == "telemetry" and one["data"]["source"] == "counters":
                one["data"]["offset_ns"] = 1

    found = energy_per_unit(made(tmp_path, reference(step_ns=LONG_NS), at_once), DEVICES, "sample").metric
    assert found.value is None
    assert "same time" in found.reason


@pytest.mark.parametrize("step_ns", [LONG_NS, SHORT_NS])
def test_node_has_devices_processors_and_memory(tmp_path: Path, step_ns: int) -> None:
    record = made(tmp_path, reference(step_ns=step_ns), with_rapl(100))
    found = energy_per_unit(record, NODE, "sample").metric
    assert found.value == pytest.approx(500 * step_ns / 1e9 / REFERENCE.batch, rel=0.02)
    assert "(RAPL) and accelerators" in found.note


def test_run_on_processors_has_the_energy_of_the_node(tmp_path: Path) -> None:
    record = made(tmp_path, Good(step_ns=LONG_NS), with_rapl(100))
    found = metrics_of(record)
    assert found["energy_devices_j_per_unit"].reason == "no accelerator in this run"
    assert found["energy_node_j_per_unit"].value == pytest.approx(100 * LONG_NS / 1e9 / MINI.batch, rel=0.02)


def test_what_cannot_be_read_is_null_with_the_reason_of_the_log(tmp_path: Path) -> None:
    denied = made(tmp_path / "a", reference(), with_rapl(None))
    assert energy_per_unit(denied, NODE, "sample").metric.reason == "permission denied"
    old = made(tmp_path / "b", reference())
    assert energy_per_unit(old, NODE, "sample").metric.reason == "host.energy_uj is not in the log"
    short = made(tmp_path / "c", Good(), with_rapl(100))
    assert "energy needs 2 s" in energy_per_unit(short, NODE, "sample").metric.reason


def test_energy_that_decreases_is_rejected(tmp_path: Path) -> None:
    def back(events: Any) -> None:
        with_rapl(100)(events)
        pick(events, "telemetry", at="window_close")["host"]["energy_uj"] = 1

    found = check_result(rewrite(write_good(tmp_path, Good()), back)).findings
    assert [(one.rule, one.location.rpartition(".")[2]) for one in found] == [("TELE-002", "energy_uj")]


RANGE = 262_143_328_851  # µJ, as of a server's processor


def zone(root: Path, name: str, what: str, energy: int) -> Path:
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{what}\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE - 1}\n")
    return folder


def test_rapl_adds_processors_and_memory_and_counts_over_a_wrap(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", RANGE - 100)
    zone(tmp_path, "intel-rapl:1", "package-1", 10)
    zone(tmp_path, "intel-rapl:0:0", "core", 5_000)
    zone(tmp_path, "intel-rapl:0:1", "dram", 1)
    zone(tmp_path, "intel-rapl:2", "psys", 70_000)
    rapl = Rapl(tmp_path)
    start = rapl.read()
    assert start == RANGE - 89
    (first / "energy_uj").write_text("50")
    assert rapl.read() - start == 150
    (first / "energy_uj").write_text("60")
    assert rapl.read() - start == 160


def test_rapl_that_may_have_wrapped_twice_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 500 W the counter wraps around after 524 s."""
    times = iter((0.0, 500.0, 1000.0, 1530.0))
    monkeypatch.setattr("suite.telemetry.rapl.time.monotonic", lambda: next(times))
    zone(tmp_path, "intel-rapl:0", "package-0", 7)
    rapl = Rapl(tmp_path)
    assert [rapl.read() for _ in range(3)] == [7, 7, 7]
    with pytest.raises(Unavailable, match=r"several times in 530 s: at 500 W it does so after 524 s"):
        rapl.read()


def test_machine_without_rapl_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no energy counters"):
        Rapl(tmp_path).read()
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    with pytest.raises(OSError, match="energy_uj"):
        Rapl(tmp_path).read()
