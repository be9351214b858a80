"""Counters at window start and window end, independent of the sampler. Two readings per repeat."""

from __future__ import annotations

from typing import Any

from suite.telemetry import cgroup
from suite.telemetry.nvml import Devices
from suite.telemetry.process import ProcessTree, descends
from suite.telemetry.rapl import Rapl
from suite.telemetry.reading import Collector, Unavailable, describe


class CounterReader:
    """Reads the control group, processes and devices of one worker; the group is located once.

    ``pid`` is the worker in this pid namespace (in a container: the pid of its first process outside).
    """

    def __init__(self, pid: int, devices: Devices | None = None) -> None:
        self.pid = pid
        self._processes = ProcessTree(pid)
        self._devices = devices or Devices(())
        self._rapl = Rapl()
        self._group: cgroup.Cgroup | None = None
        self._no_group = ""
        try:
            self._group = cgroup.locate(pid)
        except Unavailable as problem:
            self._no_group = str(problem)
        except OSError as problem:
            self._no_group = describe(problem)

    def read(self) -> tuple[dict[str, Any], dict[str, str]]:
        """``host``, ``processes`` and ``devices`` of a telemetry event, and the reasons of their nulls."""
        collector = Collector()
        host: dict[str, Any] | None = None
        if self._group is None:
            collector.missing("host", self._no_group)
        else:
            host, reasons = cgroup.usage(self._group)
            collector.include("host", reasons)
            host["energy_uj"] = collector.take("host.energy_uj", self._rapl.read)
        processes, reasons = self._processes.usage()
        collector.include("processes", reasons)
        devices, reasons = self._devices.read(lambda pid: descends(pid, self.pid))
        collector.include("devices", reasons)
        return {"host": host, "processes": processes, "devices": devices}, collector.reasons
