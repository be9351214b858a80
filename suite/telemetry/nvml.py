"""NVIDIA devices through NVML: the counters and gauges of the log's telemetry events.

Field ids are those of nvml.h, as nvidia-ml-py 13 names them. nvidia-ml-py is imported only
for a run with devices; tests pass a double.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from suite.telemetry.reading import Collector, Unavailable

# Counters and the averaged power, all read with one nvmlDeviceGetFieldValues.
ECC_CORRECTED = 3  # NVML_FI_DEV_ECC_SBE_VOL_TOTAL
ECC_UNCORRECTED = 4  # NVML_FI_DEV_ECC_DBE_VOL_TOTAL
TOTAL_ENERGY = 83  # mJ since the driver was loaded
PCIE_REPLAY = 94
POWER_AVERAGE = 185  # mW over the last second on Ampere and later, which suits samples at 1 Hz
THROTTLE = {  # NVML_FI_DEV_CLOCKS_EVENT_REASON_*, ns since the driver was loaded
    "sw_power_cap": 74,
    "sync_boost": 76,
    "sw_thermal": 269,
    "hw_thermal": 270,
    "hw_power_brake": 271,
}
FIELDS = (ECC_CORRECTED, ECC_UNCORRECTED, TOTAL_ENERGY, PCIE_REPLAY, POWER_AVERAGE, *THROTTLE.values())
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t

_UUID_DOMAIN = "suite-device/1\n"


def hash_uuid(uuid: str) -> str:
    """The name of a device in the log: equal for one device in every log, and not its UUID.

    The salt is fixed so that overlapping runs on one device are detected; a UUID has 122 random bits, so the
    digest cannot be reversed by trial.
    """
    return hashlib.sha256((_UUID_DOMAIN + uuid).encode()).hexdigest()


class Devices:
    """The open devices of a run. Without NVML, every reading is None with that reason.

    ``chosen``: ordinals among the visible devices (``"0"``, ``"cuda:0"``) or UUIDs; empty for a run on the
    CPU. ``visible``: the value of CUDA_VISIBLE_DEVICES, None where it is not set. Ordinals follow PCI order,
    as in CUDA if the devices are of one kind or CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """

    def __init__(self, chosen: Sequence[str], visible: str | None = None, nvml: Any = None) -> None:
        self.nvml = nvml
        self.handles: list[Any] = []
        self.uuids: list[str] = []  # as NVML writes them: for CUDA_VISIBLE_DEVICES, never for the log
        self.reason: str | None = None
        if not chosen:
            return
        try:
            self._open(chosen, visible)
        except Unavailable as problem:
            self.reason = str(problem)
            self.handles = []

    def _open(self, chosen: Sequence[str], visible: str | None) -> None:
        if self.nvml is None:
            try:
                import pynvml
            except ImportError:
                raise Unavailable("the package nvidia-ml-py is not installed") from None
            self.nvml = pynvml
        self.call(self.nvml.nvmlInit)
        shown = None if visible is None else self._visible(visible)
        for name in chosen:
            handle = self._choose(name, shown)
            self.handles.append(handle)
            self.uuids.append(text_of(self.call(self.nvml.nvmlDeviceGetUUID, handle)))

    def _visible(self, text: str) -> list[Any]:
        """Handles of CUDA_VISIBLE_DEVICES; as in CUDA, the first invalid entry ends the list."""
        handles: list[Any] = []
        for entry in (part.strip() for part in text.split(",")):
            try:
                handles.append(self._by_name(entry))
            except (Unavailable, ValueError):
                break
        return handles

    def _choose(self, name: str, shown: list[Any] | None) -> Any:
        ordinal = name.removeprefix("cuda:")
        if not ordinal.isdigit():
            return self._by_name(name)
        if shown is None:
            return self._by_name(ordinal)
        if int(ordinal) >= len(shown):
            raise Unavailable(
                f"expected device {ordinal}, found {len(shown)} devices in CUDA_VISIBLE_DEVICES"
            )
        return shown[int(ordinal)]

    def _by_name(self, name: str) -> Any:
        """The handle of an index in PCI order or of a UUID (shortened as CUDA allows)."""
        if name.isdigit():
            return self.call(self.nvml.nvmlDeviceGetHandleByIndex, int(name))
        if name.startswith("MIG-"):
            return self.call(self.nvml.nvmlDeviceGetHandleByUUID, name)
        for index in range(self.call(self.nvml.nvmlDeviceGetCount)):
            handle = self.call(self.nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = text_of(self.call(self.nvml.nvmlDeviceGetUUID, handle))
            if name.startswith("GPU-") and uuid.startswith(name):
                return handle
        raise Unavailable(f"NVML lists no device named {name[:48]!r}")

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of an NVML call; its errors as Unavailable."""
        try:
            return function(*arguments)
        except self.nvml.NVMLError as problem:
            raise Unavailable(f"NVML: {problem}") from None

    def read(self, in_run: Callable[[int], bool]) -> tuple[list[dict[str, Any]] | None, dict[str, str]]:
        """The ``devices`` list of a telemetry event and its reasons (``""``: of the whole list).

        ``in_run(pid)``: whether a process on a device belongs to the run.
        """
        if self.reason is not None:
            return None, {"": self.reason}
        collector = Collector()
        data: list[dict[str, Any]] = []
        for index, handle in enumerate(self.handles):
            device, reasons = self._read_device(handle, in_run)
            data.append({"uuid": hash_uuid(self.uuids[index]), **device})
            collector.include(str(index), reasons)
        return data, collector.reasons

    def _read_device(
        self, handle: Any, in_run: Callable[[int], bool]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        nvml, call, collector = self.nvml, self.call, Collector()
        fields = self._fields(handle)
        rates = _once(lambda: call(nvml.nvmlDeviceGetUtilizationRates, handle))
        readings: dict[str, Callable[[], Any]] = {
            "energy_mj": lambda: fields(TOTAL_ENERGY),
            "ecc_corrected": lambda: fields(ECC_CORRECTED),
            "ecc_uncorrected": lambda: fields(ECC_UNCORRECTED),
            "pcie_replay": lambda: fields(PCIE_REPLAY),
            "memory_used_bytes": lambda: call(nvml.nvmlDeviceGetMemoryInfo, handle).used,
            "sm_clock_mhz": lambda: call(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: call(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "power_mw": lambda: self._power(handle, fields),
            "temperature_c": lambda: call(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            "utilisation_percent": lambda: rates().gpu,
            "memory_utilisation_percent": lambda: rates().memory,
            # Images decoded by the multiprocessors leave it at 0 (docs/data.md).
            "jpeg_utilisation_percent": lambda: call(nvml.nvmlDeviceGetJpgUtilization, handle)[0],
            "event_reasons": lambda: call(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
            "foreign_processes": lambda: self._foreign(handle, in_run),
        }
        data: dict[str, Any] = {
            path: collector.take(path, partial(_whole, read)) for path, read in readings.items()
        }
        data["throttle_ns"] = {
            name: collector.take(f"throttle_ns.{name}", partial(fields, field))
            for name, field in THROTTLE.items()
        }
        return data, collector.reasons

    def _fields(self, handle: Any) -> Callable[[int], int]:
        """A function from field id to value; its first call fetches all fields."""
        fetched = _once(
            lambda: {v.fieldId: v for v in self.call(self.nvml.nvmlDeviceGetFieldValues, handle, FIELDS)}
        )

        def value(field: int) -> int:
            found = fetched()[field]
            if found.nvmlReturn != 0:
                raise Unavailable(f"NVML: {self.nvml.NVMLError(found.nvmlReturn)}")
            return int(getattr(found.value, _MEMBERS[found.valueType]))

        return value

    def _power(self, handle: Any, fields: Callable[[int], int]) -> int:
        try:
            return fields(POWER_AVERAGE)
        except Unavailable:  # older drivers have another call for it
            return int(self.call(self.nvml.nvmlDeviceGetPowerUsage, handle))

    def _foreign(self, handle: Any, in_run: Callable[[int], bool]) -> int:
        """The number of processes on the device that the run did not start."""
        running = self.call(self.nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return sum(not in_run(process.pid) for process in running)


def open_devices(chosen: Sequence[str]) -> Devices:
    """The devices ``chosen``, opened once per process: starting NVML takes up to a second on some drivers."""
    return _opened(tuple(chosen), os.environ.get("CUDA_VISIBLE_DEVICES"))


@cache
def _opened(chosen: tuple[str, ...], visible: str | None) -> Devices:
    return Devices(chosen, visible)


def text_of(value: Any) -> str:
    """NVML's strings are bytes in older packages."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _whole(read: Callable[[], Any]) -> int:
    return int(read())


def _once(read: Callable[[], Any]) -> Callable[[], Any]:
    """A reading shared by several fields: taken at the first use; its failure is raised for each field."""
    result: list[Any] = []

    def value() -> Any:
        if not result:
            try:
                result.append(read())
            except Unavailable as problem:
                result.append(problem)
        if isinstance(result[0], Unavailable):
            raise result[0]
        return result[0]

    return value
