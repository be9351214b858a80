"""Logs and shared files of baselines: what the strict reader accepts, computes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.baseline.sample import sample as take_sample
from suite.compare.baseline_verdict import verdicts
from suite.log.safe import safe
from suite.metrics.baseline import BaselineProblem, Cohort, read_log, read_shared
from suite.report.baseline_text import text
from suite.telemetry.facts import machine_identity
from suite.telemetry.nvml import Devices
from tests.fixtures.baselines import Events, sample, write_log
from tests.unit.fake_nvml import FakeNvml, h200

Edit = Callable[[Events, dict[str, Any]], None]


def test_figures_follow_from_the_windows(tmp_path: Path) -> None:
    found = read_log(write_log(tmp_path))
    assert found.series["cpu.gemm_fp32"].rate == pytest.approx(2e9 / 0.010000002)
    assert found.series["cpu.copy"].rate == pytest.approx(2e8 / 0.020000002)
    assert 0 < found.series["cpu.copy"].deviation < 1e-6
    assert found.cohort.folder == "xeon-2-threads-1-x-h200"
    assert found.conditions == ()


def test_a_shared_file_holds_what_the_log_holds(tmp_path: Path) -> None:
    found = read_log(write_log(tmp_path))
    path = tmp_path / f"{found.digest}.json"
    path.write_bytes(found.shared())
    assert read_shared(path) == found


def edit_first(kind: str, **changes: Any) -> Edit:
    def edit(events: Events, header: dict[str, Any]) -> None:
        next(data for found, data in events if found == kind).update(changes)

    return edit


def without(kind: str, number: int = 0) -> Edit:
    def edit(events: Events, header: dict[str, Any]) -> None:
        del events[[at for at, (found, _) in enumerate(events) if found == kind][number]]

    return edit


FORGERIES: dict[str, tuple[Edit, str]] = {
    "window of zero ns": (edit_first("window", elapsed_ns=0), "elapsed_ns"),
    "negative work": (edit_first("series", work=-1), "work"),
    "unknown field": (edit_first("window", rate=7), "rate"),
    "unknown kind": (lambda events, _: events.append(("step", {})), "kind"),
    "a window is missing": (without("window", 4), "expected windows 0 to 4"),
    "a window of no series": (edit_first("window", name="cpu.triad"), "expected a series of the log"),
    "no check": (without("check"), "expected a series with one check"),
    "an error above the limit": (edit_first("check", error="0.1"), "error of at most 0.0001, found 0.1"),
    "measured and missing": (edit_first("missing", name="cpu.copy"), "expected windows or a reason"),
    "two series of one name": (edit_first("series", name="cpu.copy"), "expected each name once"),
    "a null without reason": (lambda _, header: header.update(machine=None), "expected a reason"),
    "another format": (lambda _, header: header.update(format="suite-baseline/2"), "suite-baseline/1"),
    "a name that is a path": (edit_first("series", name="cpu.../x"), "name"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_log_is_refused(name: str, tmp_path: Path) -> None:
    edit, message = FORGERIES[name]
    folder = write_log(tmp_path, edit)
    with pytest.raises(BaselineProblem, match=message):
        read_log(folder)


def test_a_changed_byte_breaks_the_chain(tmp_path: Path) -> None:
    folder = write_log(tmp_path)
    log = folder / "run.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"elapsed_ns":10000000', b'"elapsed_ns":90000000'))
    with pytest.raises(BaselineProblem, match="prev"):
        read_log(folder)


def test_an_aborted_log_and_a_renamed_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineProblem, match="outcome completed"):
        read_log(write_log(tmp_path / "a", outcome="aborted"))
    renamed = write_log(tmp_path / "b").rename(tmp_path / "another")
    with pytest.raises(BaselineProblem, match="folder's name another"):
        read_log(renamed)


SHARED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a float": (lambda value: value["series"]["cpu.copy"].update(work=1.5), "expected"),
    "four windows": (lambda value: value["series"]["cpu.copy"]["windows"].pop(), "windows"),
    "an unknown field": (lambda value: value.update(rate=1), "rate"),
    "a name that is none": (lambda value: value["series"].update({"../x": value["series"]["cpu.copy"]}), "x"),
    "another log": (lambda value: value.update(log="0" * 64), "expected the name"),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_hostile_shared_file_is_refused(name: str, tmp_path: Path) -> None:
    edit, message = SHARED[name]
    found = read_log(write_log(tmp_path))
    value = json.loads(found.shared())
    edit(value)
    path = tmp_path / f"{found.digest}.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BaselineProblem, match=message):
        read_shared(path)


def test_a_link_is_no_shared_file(tmp_path: Path) -> None:
    found = read_log(write_log(tmp_path))
    (tmp_path / "real").write_bytes(found.shared())
    link = tmp_path / f"{found.digest}.json"
    link.symlink_to(tmp_path / "real")
    with pytest.raises(BaselineProblem, match="a link"):
        read_shared(link)


CAUSES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "affinity": ({"cores": 1}, {}, "the affinity allows 1 of 2 cores"),
    "quota": ({"limit": "1.6"}, {}, "limits the processor to 1.6 of 2 cores"),
    "throttled": ({"throttled_ns": 3 * 10**9}, {}, "stopped the processes for 3.0 s"),
    "neighbour": ({"busy_ns": 30 * 10**9, "suite_ns": 20 * 10**9}, {}, "other processes used 1.0 of 2 cores"),
    "steal": ({"steal_ns": 10**9}, {}, "the hypervisor withheld 5% of the processor's time"),
    "power cap": ({}, {"power_limit_mw": 630_000}, "gpu0: the power is capped at 630 W; the default"),
    "lanes": ({}, {"pcie_width": 8}, "gpu0: PCIe has 8 lanes of 16"),
    "clocks": ({}, {"throttle_ns": {"hw_thermal": 4 * 10**9}}, "lowered for 4.0 s of 10 s (hw thermal)"),
    "errors": ({}, {"ecc_uncorrected": 2}, "gpu0: 2 uncorrectable memory errors"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_what_limits_the_machine_is_named(name: str) -> None:
    from suite.metrics.baseline_conditions import conditions

    cpu, device, expected = CAUSES[name]
    events = [
        {"mono_ns": at, "data": data}
        for at, (_, data) in ((0, sample("before", device={})), (10**10, sample("after", cpu, device)))
    ]
    (found,) = conditions(events)
    assert expected in found
    assert found.startswith("CPU group: ")


def test_the_table_fits_a_narrow_terminal_and_names_what_is_missing(tmp_path: Path) -> None:
    found = read_log(write_log(tmp_path))
    shown = text(found, verdicts(found, []), 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "cpu.copy" in shown
    assert "10.0 GB/s" in shown
    assert "not measured: gpu0.jpeg: torchvision is not in this environment" in shown
    assert "5 earlier baselines of this machine are needed, 0 found" in " ".join(shown.split())
    assert safe(shown.replace("\n", " "), 10**6) == shown.replace("\n", " ")


def test_a_cohort_is_a_safe_name_of_a_folder() -> None:
    assert (
        Cohort("../../etc (R)\x1b[31m", 4, {"NVIDIA H200": 8}).folder == "etc-r-31m-4-threads-8-x-nvidia-h200"
    )


def test_samples_of_gpus_are_what_a_log_accepts(tmp_path: Path) -> None:
    idle, shared = h200(), h200("GPU-2", pids=[7], unsupported=frozenset({"nvmlDeviceGetCurrPcieLinkWidth"}))
    devices = Devices(["0", "1"], None, FakeNvml([idle, shared]))
    without_driver = Devices(["0"], None, FakeNvml([h200()], broken=True))

    def edit(events: Events, header: dict[str, Any]) -> None:
        events.append(("conditions", take_sample("gpu", "before", devices)))
        shared.fields = {**shared.fields, 269: ("ullVal", 10**12)}  # lowered clocks
        events.append(("conditions", take_sample("gpu", "after", devices)))
        events += [("conditions", take_sample("disk", at, without_driver)) for at in ("before", "after")]

    found = [one for one in read_log(write_log(tmp_path, edit)).conditions if "gpu" in one]
    assert found[0] == "GPU group: gpu1: other processes were on it before the group: 1"
    assert found[1].startswith("GPU group: gpu1: clocks were lowered for 1000.0 s")
    assert found[1].endswith("(sw thermal)")
    assert len(found) == 2


def test_a_machine_is_identified_by_its_id_and_its_gpus(tmp_path: Path) -> None:
    none, one = Devices([]), Devices(["0"], None, FakeNvml([h200()]))
    assert machine_identity(none, tmp_path) is None
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef\n")
    identities = [machine_identity(devices, tmp_path) for devices in (none, none, one)]
    assert identities[0] == identities[1] != identities[2]
    assert "0123456789abcdef" not in str(identities)
