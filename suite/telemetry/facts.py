"""Facts about the machine, read outside the worker, that stay equal over the repeats of a run.

Only constant facts belong here (no current frequency, load or link speed): the checker requires equal
facts in all repeats. Host name, user, serial numbers and paths are not among them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from suite.log.processors import compact_list, expand_list
from suite.telemetry import cgroup
from suite.telemetry.device_facts import device_facts
from suite.telemetry.nvml import Devices, open_devices
from suite.telemetry.reading import (
    Collector,
    Unavailable,
    describe,
    read_int,
    read_text,
)

# Instruction sets that affect the speed of numerical kernels.
FLAGS = (
    # x86
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    # Arm
    *("asimd", "asimdhp", "asimddp", "asimdfhm", "i8mm", "bf16"),
    *("sve", "sve2", "svei8mm", "svebf16", "sme", "sme2"),
)
_HYPERVISORS = {  # as firmware and /sys/hypervisor name them
    "qemu": "KVM",
    "kvm": "KVM",
    "amazon ec2": "Amazon EC2",
    "google": "Google Compute Engine",
    "microsoft corporation": "Hyper-V",
    "vmware, inc.": "VMware",
    "xen": "Xen",
}

_MACHINE_DOMAIN = "suite-baseline-machine/1\n"

Facts = dict[str, Any]
Readings = dict[str, Callable[[], Any]]


def machine_facts(devices: Sequence[str] = (), root: Path = Path("/")) -> tuple[Facts, dict[str, str]]:
    """The facts of the ``env`` event of side ``outside``, and the reasons of the nulls among them.

    Nested JSON values without floats. ``devices``: UUIDs or ordinals of those of the run, none for a
    run on the CPU (see :class:`suite.telemetry.nvml.Devices`). ``root`` stands for / in tests.
    """
    collector = Collector()
    facts: Facts = {}
    groups = {
        "cpu": _cpu(root),
        "memory": _memory(root),
        "kernel": _kernel(root),
        "virtualisation": _virtualisation(root),
        "python": {"version": platform.python_version, "implementation": platform.python_implementation},
    }
    for name, readings in groups.items():
        facts[name] = {field: collector.take(f"{name}.{field}", read) for field, read in readings.items()}
    facts["cgroup"], reasons = _cgroup(root)
    collector.include("cgroup", reasons)
    facts["accelerators"], reasons = device_facts(open_devices(devices))
    collector.include("accelerators", reasons)
    return facts, collector.reasons


def machine_identity(devices: Devices, root: Path = Path("/")) -> str | None:
    """A digest of the ids of the operating system and of the GPUs; None without an id of the system.

    Both ids are random, so that the digest reveals neither.
    """
    try:
        system = (root / "etc/machine-id").read_text().strip()
    except OSError:
        system = ""
    if not system:
        return None
    text = _MACHINE_DOMAIN + "\n".join([system, *sorted(devices.uuids)])
    return hashlib.sha256(text.encode()).hexdigest()


def _cgroup(root: Path) -> tuple[Facts | None, dict[str, str]]:
    try:
        return cgroup.limits(cgroup.locate("self", root))
    except Unavailable as problem:
        return None, {"": str(problem)}
    except OSError as problem:
        return None, {"": describe(problem)}


def _cpu(root: Path) -> Readings:
    system = root / "sys/devices/system/cpu"
    info = _cpuinfo(root)
    cores = _Cores(system)
    return {
        "model": lambda: _model(info, root),
        "vendor": lambda: info.get("vendor_id") or info["CPU implementer"],
        "microcode": lambda: _need(info, "microcode", "the processor description has no microcode revision"),
        "architecture": platform.machine,
        "flags": lambda: _flags(info),
        "sockets": lambda: cores.count("physical_package_id"),
        "cores": lambda: cores.count("physical_package_id", "core_id"),
        "threads": lambda: len(cores.online()),
        "smt": lambda: read_text(system / "smt/control"),
        "numa_nodes": lambda: len(expand_list(read_text(root / "sys/devices/system/node/online"))),
        "affinity": lambda: compact_list(os.sched_getaffinity(0)),
        "governor": lambda: cores.same("cpufreq/scaling_governor"),
        "frequency_driver": lambda: cores.same("cpufreq/scaling_driver"),
        "max_frequency_khz": lambda: int(cores.same("cpufreq/cpuinfo_max_freq")),
        "turbo": lambda: _turbo(system),
    }


def _cpuinfo(root: Path) -> dict[str, str]:
    """The description of the first processor; empty without one."""
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return {}
    rows = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def _need(table: dict[str, str], name: str, reason: str) -> str:
    if name not in table:
        raise Unavailable(reason)
    return table[name]


def _model(info: dict[str, str], root: Path) -> str:
    if "model name" in info:
        return info["model name"]
    tree = root / "proc/device-tree/model"  # Arm boards
    if tree.exists():
        return read_text(tree).strip("\0")
    if "CPU part" in info:
        return f"implementer {info['CPU implementer']} part {info['CPU part']}"
    raise Unavailable("the processor description names no model")


def _flags(info: dict[str, str]) -> list[str]:
    listed = set((info.get("flags") or info.get("Features") or "").split())
    if not listed:
        raise Unavailable("the processor description lists no instruction sets")
    return [flag for flag in FLAGS if flag in listed]


class _Cores:
    """The topology and settings of the processors that are online."""

    def __init__(self, system: Path) -> None:
        self.system = system

    def online(self) -> list[int]:
        return expand_list(read_text(self.system / "online"))

    def count(self, *names: str) -> int:
        """The number of distinct combinations of the topology files ``names``."""
        return len({tuple(self._read(cpu, f"topology/{name}") for name in names) for cpu in self.online()})

    def same(self, name: str) -> str:
        """The setting that all processors share, or ``mixed: a, b``."""
        values = {self._read(cpu, name) for cpu in self.online()}
        return values.pop() if len(values) == 1 else f"mixed: {', '.join(sorted(values))}"

    def _read(self, cpu: int, name: str) -> str:
        return read_text(self.system / f"cpu{cpu}" / name)


def _turbo(system: Path) -> bool:
    intel = system / "intel_pstate/no_turbo"
    if intel.exists():
        return read_int(intel) == 0
    return read_int(system / "cpufreq/boost") == 1


def _memory(root: Path) -> Readings:
    def field(name: str) -> int:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise Unavailable("the kernel does not report it")

    return {
        "total_bytes": lambda: field("MemTotal"),
        "swap_total_bytes": lambda: field("SwapTotal"),
        "huge_pages": lambda: _chosen(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        "page_bytes": lambda: os.sysconf("SC_PAGE_SIZE"),
    }


def _chosen(text: str) -> str:
    """The bracketed value of ``always [madvise] never``."""
    return text.partition("[")[2].partition("]")[0]


def _kernel(root: Path) -> Readings:
    clock = root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
    return {
        "system": platform.system,
        "release": platform.release,
        "distribution": lambda: _distribution(root),
        "libc": lambda: " ".join(platform.libc_ver()).strip(),
        "clocksource": lambda: read_text(clock),
        "mitigations": lambda: _mitigations(root / "sys/devices/system/cpu/vulnerabilities"),
    }


def _distribution(root: Path) -> str:
    for name in ("etc/os-release", "usr/lib/os-release"):
        if (root / name).exists():
            rows = (line.partition("=") for line in (root / name).read_text().splitlines())
            table = {name: value.strip("\"'") for name, _, value in rows}
            return f"{table['ID']} {table.get('VERSION_ID', 'rolling')}"
    raise Unavailable("the system does not describe its release")


def _mitigations(folder: Path) -> dict[str, str]:
    """The kernel's text on each processor vulnerability that affects this machine."""
    states = {file.name: read_text(file) for file in sorted(folder.iterdir())}
    return {name: state for name, state in states.items() if state != "Not affected"}


def _virtualisation(root: Path) -> Readings:
    return {"hypervisor": lambda: _hypervisor(root), "container": lambda: _container(root)}


def _hypervisor(root: Path) -> str:
    """A hint: the platform's name, ``unnamed`` if only the processor reports a hypervisor, or ``none``."""
    for name in ("sys/hypervisor/type", "sys/class/dmi/id/sys_vendor"):
        try:
            found = _HYPERVISORS.get(read_text(root / name).lower())
        except OSError:
            continue
        if found:
            return found
    flags = _cpuinfo(root).get("flags")
    if flags is None:
        raise Unavailable("neither firmware nor processor report whether this is a virtual machine")
    return "unnamed" if "hypervisor" in flags.split() else "none"


def _container(root: Path) -> str:
    """A hint: the engine whose marker file the root of the file system has, or ``none``."""
    markers = {"docker": ".dockerenv", "podman": "run/.containerenv", "apptainer": ".singularity.d"}
    return next((engine for engine, marker in markers.items() if (root / marker).exists()), "none")


def main() -> int:
    """Print the facts of this machine and the reasons of the nulls; the arguments name devices."""
    import json

    facts, reasons = machine_facts(sys.argv[1:])
    print(json.dumps({"facts": facts, "reasons": reasons}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
