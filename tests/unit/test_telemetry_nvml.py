"""Devices through a double of pynvml: choice of devices, counters, gauges, absent drivers."""

from __future__ import annotations

import os
from typing import Any

import pytest

from suite.log.nulls import unexplained
from suite.telemetry.device_facts import device_facts
from suite.telemetry.nvml import Devices, hash_uuid
from suite.telemetry.process import descends
from tests.unit.fake_nvml import FakeDevice, FakeNvml, h200

FIRST, SECOND, THIRD = (f"GPU-{n}0000000-aaaa-bbbb-cccc-dddddddddddd" for n in (1, 2, 3))


def three() -> FakeNvml:
    return FakeNvml([h200(FIRST), h200(SECOND), h200(THIRD)])


def opened(chosen: list[str], visible: str | None = None, nvml: FakeNvml | None = None) -> Devices:
    return Devices(chosen, visible, nvml or three())


def mine(pid: int) -> bool:
    return pid == 100


@pytest.mark.parametrize(
    ("chosen", "visible", "expected"),
    [
        (["0", "2"], None, [FIRST, THIRD]),
        (["cuda:1"], None, [SECOND]),
        ([SECOND], None, [SECOND]),
        (["GPU-3"], None, [THIRD]),
        (["0", "1"], "2,0", [THIRD, FIRST]),
        (["0"], f"{SECOND},0", [SECOND]),
        (["1"], "GPU-3,GPU-1", [FIRST]),
        ([], "0", []),
    ],
)
def test_choice_honours_visible_devices(chosen: list[str], visible: str | None, expected: list[str]) -> None:
    devices = opened(chosen, visible)
    assert devices.reason is None
    assert devices.uuids == expected


@pytest.mark.parametrize(
    ("chosen", "visible"), [(["1"], "2"), (["1"], "0,-1,1"), (["0"], ""), (["7"], None), (["GPU-9"], None)]
)
def test_missing_device_gives_a_reason(chosen: list[str], visible: str | None) -> None:
    devices = opened(chosen, visible)
    data, reasons = devices.read(mine)
    assert data is None
    assert list(reasons) == [""]
    assert reasons[""]


def test_reading_takes_every_field_once() -> None:
    nvml = FakeNvml([h200(FIRST, pids=[100, 200, 300])])
    data, reasons = opened(["0"], nvml=nvml).read(mine)
    assert reasons == {}
    assert data == [
        {
            "uuid": hash_uuid(FIRST),
            "energy_mj": 123_456_789,
            "throttle_ns": {
                "sw_power_cap": 5_000_000_000,
                "sync_boost": 0,
                "sw_thermal": 1_000,
                "hw_thermal": 2_000,
                "hw_power_brake": 3_000,
            },
            "ecc_corrected": 0,
            "ecc_uncorrected": 0,
            "pcie_replay": 2,
            "memory_used_bytes": 1_073_741_824,
            "sm_clock_mhz": 1755,
            "memory_clock_mhz": 1755,
            "power_mw": 640_000,
            "temperature_c": 55,
            "utilisation_percent": 97,
            "memory_utilisation_percent": 41,
            "jpeg_utilisation_percent": 63,
            "event_reasons": 4,
            "foreign_processes": 2,
        }
    ]
    assert nvml.field_calls == 1
    assert FIRST not in str(data)


def test_unsupported_reading_is_null_with_a_reason() -> None:
    fields = {83: ("ullVal", 7), 74: ("ullVal", 2**60)}
    device = h200(FIRST, fields=fields, unsupported=frozenset({"nvmlDeviceGetUtilizationRates"}))
    data, reasons = opened(["0"], nvml=FakeNvml([device])).read(mine)
    assert data is not None
    assert data[0]["energy_mj"] == 7
    assert data[0]["power_mw"] == 650_000, "the older call stands in for the field"
    assert data[0]["utilisation_percent"] is None
    assert reasons["0.utilisation_percent"] == "NVML: Not Supported"
    assert reasons["0.memory_utilisation_percent"] == "NVML: Not Supported"
    assert reasons["0.throttle_ns.hw_thermal"] == "NVML: Not Supported"
    assert "2^53" in reasons["0.throttle_ns.sw_power_cap"]
    assert unexplained({"devices": data, "reasons": {f"devices.{p}": r for p, r in reasons.items()}}) == (
        set(),
        set(),
    )


def test_process_of_another_namespace_is_not_counted_as_foreign() -> None:
    invisible = 2**22 + 1  # above the largest pid that Linux gives
    device = h200(FIRST, pids=[invisible])
    data, reasons = opened(["0"], nvml=FakeNvml([device])).read(lambda pid: descends(pid, os.getpid()))
    assert data is not None
    assert data[0]["foreign_processes"] is None
    assert "namespace" in reasons["0.foreign_processes"]


def test_missing_driver_gives_a_reason() -> None:
    nvml = FakeNvml([h200()], broken=True)
    devices = opened(["0"], nvml=nvml)
    assert devices.read(mine) == (None, {"": "NVML: Driver Not Loaded"})
    assert device_facts(devices) == (None, {"": "NVML: Driver Not Loaded"})


def test_run_on_the_cpu_has_no_devices_and_needs_no_nvml() -> None:
    devices = opened([], nvml=FakeNvml([], broken=True))
    assert devices.read(mine) == ([], {})
    facts, reasons = device_facts(devices)
    assert facts is not None
    assert facts["devices"] == []
    assert unexplained({**facts, "reasons": reasons}) == (set(), set())


def test_device_facts_have_every_field() -> None:
    facts, reasons = device_facts(opened(["1"]))
    assert facts is not None
    assert (facts["driver"], facts["cuda"], facts["confidential"]) == ("580.95.05", "13.1", False)
    device: dict[str, Any] = facts["devices"][0]
    expected = {
        "uuid": hash_uuid(SECOND),
        "name": "NVIDIA H200",
        "pci_device": "233510de",
        "pci_bus": "00000000:1b:00.0",
        "compute_capability": "9.0",
        "ecc": True,
        "mig": False,
        "compute_mode": "default",
        "power_limit_min_mw": 200_000,
        "nvlink_links": 18,
    }
    assert {name: device[name] for name in expected} == expected
    assert reasons == {"nvml_digest": "no NVML library is loaded"}


def test_unsupported_device_facts_are_null_with_a_reason() -> None:
    unsupported = frozenset(
        {"nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetApplicationsClock"}
    )
    nvml = FakeNvml([FakeDevice(FIRST, unsupported=unsupported)])
    facts, reasons = device_facts(opened(["0"], nvml=nvml))
    assert facts is not None
    assert facts["devices"][0]["ecc"] is None
    assert reasons["devices.0.ecc"] == "NVML: Not Supported"
    assert unexplained({**facts, "reasons": reasons}) == (set(), set())


def test_field_ids_are_those_of_the_package() -> None:
    pynvml = pytest.importorskip("pynvml")
    from suite.telemetry import nvml

    assert nvml.TOTAL_ENERGY == pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
    assert nvml.PCIE_REPLAY == pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER
    assert nvml.ECC_CORRECTED == pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL
    assert nvml.ECC_UNCORRECTED == pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL
    assert nvml.POWER_AVERAGE == pynvml.NVML_FI_DEV_POWER_AVERAGE
    assert {
        "sw_power_cap": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
        "sync_boost": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
        "sw_thermal": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        "hw_thermal": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        "hw_power_brake": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
    } == nvml.THROTTLE
    members = [name for name, _ in pynvml.c_nvmlValue_t._fields_]
    assert tuple(members) == nvml._MEMBERS
