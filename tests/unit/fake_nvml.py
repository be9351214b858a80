"""A double of the pynvml module at its boundary: the calls, structures and errors that the suite uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED = 3


class NVMLError(Exception):
    """As pynvml: made from the code that NVML returned."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return {NOT_SUPPORTED: "Not Supported", 9: "Driver Not Loaded"}.get(self.code, f"Unknown {self.code}")


@dataclass
class FakeDevice:
    """One device: its field values (id -> (member, value)) and the pids that compute on it."""

    uuid: str
    fields: dict[int, tuple[str, int]] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)
    unsupported: frozenset[str] = frozenset()


MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class FakeNvml:
    """The module. ``broken``: nvmlInit fails as without a driver."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_NVLINK_MAX_LINKS = 36

    def __init__(self, devices: list[FakeDevice], broken: bool = False) -> None:
        self.devices = devices
        self.broken = broken
        self.field_calls = 0

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = {
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetVbiosVersion": "96.00.99.00.01",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096, used=1_073_741_824),
            "nvmlDeviceGetPciInfo": SimpleNamespace(pciDeviceId=0x233510DE, busId="00000000:1B:00.0"),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetPowerManagementLimit": 700_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetApplicationsClock": 1980,
            "nvmlDeviceGetGpcClkVfOffset": 0,
            "nvmlDeviceGetMemClkVfOffset": 0,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=41),
            "nvmlDeviceGetJpgUtilization": [63, 167_000],
            "nvmlDeviceGetTemperature": 55,
            "nvmlDeviceGetClockInfo": 1755,
            "nvmlDeviceGetCurrentClocksEventReasons": 4,
            "nvmlDeviceGetPowerUsage": 650_000,
        }
        if name not in values:
            raise AttributeError(name)

        def call(handle: FakeDevice, *_: Any) -> Any:
            if name in handle.unsupported:
                raise NVMLError(NOT_SUPPORTED)
            return values[name]

        return call

    def nvmlInit(self) -> None:
        if self.broken:
            raise NVMLError(9)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13010

    def nvmlSystemGetConfComputeState(self) -> Any:
        return SimpleNamespace(environment=0, ccFeature=0, devToolsMode=0)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeDevice:
        if index >= len(self.devices):
            raise NVMLError(2)
        return self.devices[index]

    def nvmlDeviceGetUUID(self, handle: FakeDevice) -> str:
        return handle.uuid

    def nvmlDeviceGetFieldValues(self, handle: FakeDevice, wanted: tuple[int, ...]) -> list[Any]:
        self.field_calls += 1
        return [self._field(handle, number) for number in wanted]

    def _field(self, handle: FakeDevice, number: int) -> Any:
        if number not in handle.fields:
            return SimpleNamespace(fieldId=number, nvmlReturn=NOT_SUPPORTED, valueType=0, value=None)
        member, value = handle.fields[number]
        kind = MEMBERS.index(member)
        return SimpleNamespace(
            fieldId=number, nvmlReturn=0, valueType=kind, value=SimpleNamespace(**{member: value})
        )

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeDevice) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in handle.pids]

    def nvmlDeviceGetNvLinkState(self, handle: FakeDevice, link: int) -> int:
        if link >= 18:
            raise NVMLError(NOT_SUPPORTED)
        return 1


def h200(uuid: str = "GPU-11111111-2222-3333-4444-555555555555", **changes: Any) -> FakeDevice:
    """A device with every field that the suite reads, in the types that NVML uses for them."""
    fields = {
        3: ("ullVal", 0),
        4: ("ullVal", 0),
        83: ("ullVal", 123_456_789),
        94: ("uiVal", 2),
        185: ("uiVal", 640_000),
        74: ("ullVal", 5_000_000_000),
        76: ("ullVal", 0),
        269: ("ullVal", 1_000),
        270: ("ullVal", 2_000),
        271: ("ullVal", 3_000),
    }
    return FakeDevice(uuid, **{"fields": fields, **changes})
