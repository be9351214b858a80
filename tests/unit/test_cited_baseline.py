"""The baseline that a run cites: found by the harness, judged by the rules, and carried by a submission."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.compare.comparable import comparable
from suite.compare.compare import compare
from suite.log.files import BASELINE
from suite.metrics.baseline import read_log
from suite.metrics.cited_baseline import citation, file_difference
from suite.plan.cited_baseline import cite_baseline
from suite.plan.machine import Gpu, Machine
from suite.report.compare_text import blocks, to_text
from suite.rules import load
from suite.telemetry import facts
from suite.telemetry.nvml import Devices, hash_uuid
from tests.fixtures.baselines import Events, write_log
from tests.fixtures.forged import Forged
from tests.fixtures.forged_baseline import COLD, CONVOLVING, READING, rates
from tests.fixtures.forging import rewrite
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import Good, write_good
from tests.fixtures.registered import Registrar, with_facts
from tests.fixtures.report_records import OUTSIDE
from tests.unit.test_plan import LAPTOP, planned, settings

HERE = "b" * 64  # the machine of write_log
GPUS = Machine(16, (Gpu("GPU-1", "NVIDIA H200", 141 << 30), Gpu("GPU-2", "NVIDIA H200", 141 << 30)), None)


def rules_found(forged: Forged, folder: Path) -> set[str]:
    return {one.rule for one in check_result(forged.make(folder), rules_of).findings}


def test_cold_runs_are_bounded_by_the_disk_and_warm_ones_by_the_page_cache(tmp_path: Path) -> None:
    assert rules_found(Forged("BASE-004", rates("disk", 1), COLD), tmp_path / "a") == {"BASE-004"}
    assert rules_found(Forged("BASE-004", rates("disk", 1), READING), tmp_path / "b") == set()
    assert rules_found(Forged("BASE-004", rates("page_cache", 1), COLD), tmp_path / "c") == set()


def test_first_second_or_plateau_the_faster_counts(tmp_path: Path) -> None:
    tf32 = replace(CONVOLVING, key=replace(CONVOLVING.key, precision="tf32"))
    assert rules_found(Forged("BASE-003", rates("plateau", 10**9), tf32), tmp_path / "a") == set()
    assert rules_found(Forged("BASE-003", rates("gemm", 10**9), tf32), tmp_path / "b") == {"BASE-003"}


def test_fp32_convolutions_have_physical_limits_only(tmp_path: Path) -> None:
    assert rules_found(Forged("BASE-003", rates("gemm", 10**9), CONVOLVING), tmp_path) == set()


def logged(
    folder: Path, hours: float = 1, machine: str = HERE, gpus: tuple[str, ...] = (), slow: float = 1
) -> Path:
    """A log of a baseline that began ``hours`` ago, with a GEMM in fp32 of each GPU."""
    began = datetime.now(UTC) - timedelta(hours=hours)

    def edit(events: Events, header: dict[str, Any]) -> None:
        header |= {"run_id": f"{began:%Y%m%dT%H%MZ}-baseline-cpu-00000000", "machine": machine}
        devices = [{"uuid": hash_uuid(uuid)} for uuid in gpus]
        events[0][1]["facts"] = {"accelerators": {"devices": devices}}
        for at in range(len(gpus)):
            for part in ("first", "plateau"):
                name = f"gpu{at}.gemm_fp32_{part}"
                data = {"name": name, "unit": "FLOP", "work": 10**12, "method": "torch"}
                events.append(("series", data))
                elapsed = round(10_000_000 * slow)
                events.extend(
                    ("window", {"name": name, "window": one, "calls": 1, "elapsed_ns": elapsed})
                    for one in range(5)
                )
                events.append(("check", {"name": name, "error": "0", "limit": "0"}))

    return write_log(folder / "logs", edit)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is the one of the logs."""
    monkeypatch.setattr("suite.plan.cited_baseline.machine_identity", lambda devices: HERE)


def cited(folder: Path, machine: Machine = LAPTOP, *arguments: str) -> Any:
    plan = planned(settings(f"baselines={folder}", *arguments), machine)
    return cite_baseline(plan, load("practice"), None)


@pytest.mark.usefixtures("here")
def test_newest_baseline_of_the_last_day_is_cited(tmp_path: Path) -> None:
    logged(tmp_path, hours=5)
    newest = read_log(logged(tmp_path, hours=2))
    found = cited(tmp_path)
    assert found.data["log"] == newest.digest
    assert found.data["series"] == {
        "cpu.gemm_fp32": {"unit": "FLOP", "rate": 199_999_960_000, "method": "torch"}
    }
    assert found.shared == newest.shared()


@pytest.mark.usefixtures("here")
def test_older_baseline_is_not_cited(tmp_path: Path) -> None:
    logged(tmp_path, hours=25)
    assert cited(tmp_path).data is None
    assert cited(tmp_path).reason.startswith("no log of the last 24 hours")


def test_baseline_of_another_machine_is_not_cited(tmp_path: Path) -> None:
    logged(tmp_path, machine="c" * 64)
    found = cited(tmp_path)
    assert found.data is None
    assert "is of another machine" in found.reason or "cannot be recognised" in found.reason


def test_gpus_of_a_run_are_found_among_those_of_the_baseline(tmp_path: Path) -> None:
    logged(tmp_path, gpus=("GPU-0", "GPU-1", "GPU-2"))
    arguments = ("data=synthetic", "devices=[1]")
    found = cited(tmp_path, GPUS, *arguments)
    assert found.data["gpus"] == {"gpu2": hash_uuid("GPU-2")}
    assert {"gpu2.gemm_fp32_first", "gpu2.gemm_fp32_plateau"} < set(found.data["series"])
    assert "no GEMM of gpu2 in bf16" in cited(tmp_path, GPUS, *arguments, "precision=bf16").reason
    logged(tmp_path / "other", gpus=("GPU-7",))
    assert "of other GPUs" in cited(tmp_path / "other", GPUS, *arguments).reason


def test_disk_is_cited_only_for_data_on_such_a_disk(tmp_path: Path) -> None:
    baseline = read_log(logged(tmp_path))
    one = replace(baseline.series["cpu.copy"], method="fio")
    baseline = replace(baseline, series={**baseline.series, "disk.read": one})
    assert "disk.read" in citation(baseline, {}, "fp32", same_disk=True)["series"]
    assert "disk.read" not in citation(baseline, {}, "fp32", same_disk=False)["series"]


def test_submitted_file_has_the_figures_of_the_log(tmp_path: Path) -> None:
    baseline = read_log(logged(tmp_path))
    header = citation(baseline, {}, "fp32", same_disk=False)
    (tmp_path / BASELINE).write_bytes(baseline.shared())
    assert file_difference(tmp_path, [BASELINE], header) == ("", "")
    assert file_difference(tmp_path, [], None) == ("", "")
    assert file_difference(tmp_path, [], header)[1] == "no such file"
    assert file_difference(tmp_path, [BASELINE], None)[1] == "a file"
    faster = {name: {**one, "rate": 2 * one["rate"]} for name, one in header["series"].items()}
    for changed in (
        {"log": "d" * 64}, {"quick": False}, {"threads": 3}, {"cpu": "Epyc"}, {"series": faster},
        {"series": {**header["series"], "disk.read": {"unit": "byte", "rate": 1, "method": "fio"}}},
    ):  # fmt: skip
        assert all(file_difference(tmp_path, [BASELINE], {**header, **changed}))
    (tmp_path / BASELINE).write_text('{"format": "suite-baseline-shared/1"}')
    assert "required property" in file_difference(tmp_path, [BASELINE], header)[1]


def test_compare_states_the_ratio_of_the_baselines(tmp_path: Path) -> None:
    def half(events: Any) -> None:
        rates("page_cache", 5 * 10**10)(events)
        events[0]["data"]["baseline"]["series"]["disk.read"]["method"] = "another disk"
        events[0]["data"]["baseline"]["log"] = "e" * 64

    a = write_good(tmp_path / "a", READING)
    b = rewrite(write_good(tmp_path / "b", replace(READING, run_hex="11111111")), half)
    found = compare(*(comparable(one, rules_of)["comparable"] for one in (a, b)))
    assert found.baselines == {"cpu.page_cache_read": 0.5}
    assert found.as_dict()["baselines"] == found.baselines
    assert "baselines that A and B cite, B / A: cpu.page_cache_read 0.5000" in to_text(list(blocks(found)))
    assert compare(found.a, found.a).baselines == {}


def test_machine_without_an_id_cites_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.plan.cited_baseline.machine_identity", lambda devices: None)
    logged(tmp_path)
    assert "machine-id" in cited(tmp_path).reason
    assert facts.machine_identity(Devices([]), tmp_path) is None


def test_signed_submission_carries_the_shared_file(tmp_path: Path) -> None:
    baseline = replace(read_log(logged(tmp_path)), when="2026-11-18T08:00:00.000000Z")

    def cite(events: Any) -> None:
        with_facts(events)
        cpu: Any = OUTSIDE["cpu"]
        cohort = replace(baseline.cohort, cpu=cpu["model"], threads=cpu["threads"])
        shared = replace(baseline, cohort=cohort)
        events[0]["data"]["baseline"] = citation(shared, {}, "fp32", same_disk=False)
        (result / BASELINE).write_bytes(shared.shared())

    result = write_good(tmp_path / "results", Good())
    rewrite(result, cite)
    (tmp_path / "tree").mkdir()
    tree = Registrar(tmp_path / "tree" / "submissions")
    assert tree.submit(result) == 0
    assert tree.findings() == {}
    (run,) = tree.runs()
    other = json.loads((run / BASELINE).read_text())
    other["series"]["cpu.gemm_fp32"]["work"] *= 2
    (run / BASELINE).write_text(json.dumps(other))
    assert tree.findings().keys() == {"SUBM-009", "SIGN-005"}
    (run / BASELINE).unlink()
    assert tree.findings().keys() == {"SUBM-009", "SIGN-005"}
