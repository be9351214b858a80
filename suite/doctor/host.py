"""The machine: tools, memory, processors, clocks, limits, and other processes."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psutil

from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject, gigabytes
from suite.log.processors import expand_list
from suite.telemetry.load import BUSY_SHARE
from suite.telemetry.process import descends
from suite.telemetry.reading import Unavailable

OBSERVATION_S = 0.5
_ASK_S = 10.0
_LITTLE_SHM = 1 << 30  # bytes: loaders and NCCL may need as much in a native run
_LITTLE_MEMORY = 8 * 10**9
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_NOFILE = 4096
_TIME_ERROR = 5  # of adjtimex(2): the clock is not synchronised
_TIMEX_BYTES = 512  # its structure is smaller


def python(subject: Subject) -> Iterator[DoctorCheck]:
    """The interpreter of the suite."""
    del subject
    found = f"Python {platform.python_version()} for {platform.machine()}"
    where = "in a virtual environment" if sys.prefix != sys.base_prefix else "not in a virtual environment"
    yield DoctorCheck("python", OK, f"{found}, {where}")


def make(subject: Subject) -> Iterator[DoctorCheck]:
    """GNU make, which the documented commands use."""
    del subject
    if shutil.which("make") is None:
        yield DoctorCheck("make", WARN, "not on PATH: only `python -m suite` works", "install GNU make")
        return
    done = subprocess.run(["make", "--version"], capture_output=True, text=True, timeout=_ASK_S, check=False)
    first = (done.stdout.splitlines() or [""])[0]
    if first.startswith("GNU Make"):
        yield DoctorCheck("make", OK, first)
    else:
        yield DoctorCheck(
            "make", WARN, f"expected GNU Make, found {first or 'no version'}", "install GNU make"
        )


def processors(subject: Subject) -> Iterator[DoctorCheck]:
    """The processors and their frequency settings."""
    facts, reasons = subject.facts
    cpu = facts["cpu"]
    yield DoctorCheck(
        "CPU", OK, f"{cpu['model']}: sockets {cpu['sockets']}, cores {cpu['cores']}, threads {cpu['threads']}"
    )
    governor = cpu["governor"]
    if governor is None:
        yield DoctorCheck("CPU governor", SKIP, f"not readable: {reasons['cpu.governor']}")
    elif governor == "performance":
        yield DoctorCheck("CPU governor", OK, governor)
    else:
        fix = "sudo cpupower frequency-set --governor performance"
        yield DoctorCheck(
            "CPU governor", WARN, f"expected performance, for steady step times, found {governor}", fix
        )
    turbo = {True: "on", False: "off", None: "not readable"}[cpu["turbo"]]
    yield DoctorCheck("CPU turbo, SMT", OK, f"turbo {turbo}, SMT {cpu['smt'] or 'not readable'}")


def shared_memory(subject: Subject) -> Iterator[DoctorCheck]:
    """The host's /dev/shm, which native runs use; containers have a separate one."""
    name = "shared memory"
    state = os.statvfs(subject.root / "dev/shm")
    size = state.f_blocks * state.f_frsize
    if size < _LITTLE_SHM:
        fix = "sudo mount -o remount,size=16g /dev/shm"
        yield DoctorCheck(name, WARN, f"{gigabytes(size)}: may be too little for native runs", fix)
    else:
        yield DoctorCheck(name, OK, f"{gigabytes(size)}, {gigabytes(state.f_bavail * state.f_frsize)} free")


def memory(subject: Subject) -> Iterator[DoctorCheck]:
    """Memory, swap in use, and huge pages."""
    total, free = psutil.virtual_memory().total, psutil.virtual_memory().available
    found = f"{gigabytes(total)}, {gigabytes(free)} available"
    if free < _LITTLE_MEMORY:
        yield DoctorCheck("memory", WARN, found, "end processes that use it before a run at reference scale")
    else:
        yield DoctorCheck("memory", OK, found)
    swap = psutil.swap_memory()
    used = f"{gigabytes(swap.used)} of {gigabytes(swap.total)} used"
    if swap.used > swap.total / 10:
        yield DoctorCheck(
            "swap",
            WARN,
            f"{used}: swapping slows steps down",
            "end processes that use it, then sudo swapoff -a",
        )
    else:
        yield DoctorCheck("swap", OK, used if swap.total else "none")
    pages = subject.facts[0]["memory"]["huge_pages"]
    yield DoctorCheck("huge pages", OK, f"transparent: {pages}" if pages else "not reported by this kernel")


def clocks(subject: Subject) -> Iterator[DoctorCheck]:
    """The kernel's clock source, and whether the time of day is synchronised."""
    facts, reasons = subject.facts
    source = facts["kernel"]["clocksource"]
    if source is None:
        yield DoctorCheck("clock source", SKIP, f"not readable: {reasons['kernel.clocksource']}")
    elif source in _SLOW_CLOCKS:
        fix = "boot with clocksource=tsc, unless `dmesg` reports that the TSC is unstable"
        yield DoctorCheck("clock source", WARN, f"{source}: each reading is slow", fix)
    else:
        yield DoctorCheck("clock source", OK, source)
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state < 0:
        yield DoctorCheck("time of day", SKIP, "the kernel does not report whether it is synchronised")
    elif state == _TIME_ERROR:
        found = "the kernel reports no synchronisation: logs may have a wrong date"
        yield DoctorCheck("time of day", WARN, found, "sudo timedatectl set-ntp true")
    else:
        yield DoctorCheck("time of day", OK, "synchronised")


def user_limits(subject: Subject) -> Iterator[DoctorCheck]:
    """The shell's limits on open files and locked memory."""
    del subject
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    found = f"{_amount(files)} open files, {_amount(locked, size=True)} of locked memory"
    if files != resource.RLIM_INFINITY and files < _NOFILE:
        yield DoctorCheck(
            "ulimit", WARN, f"{found}: expected at least {_NOFILE} files", f"ulimit -n {_NOFILE}"
        )
    else:
        yield DoctorCheck("ulimit", OK, found)


def _amount(value: int, *, size: bool = False) -> str:
    if value == resource.RLIM_INFINITY:
        return "unlimited"
    return gigabytes(value) if size else str(value)


def allocation(subject: Subject) -> Iterator[DoctorCheck]:
    """The processors and the memory that this process may use, in a Slurm job or a container too."""
    facts, _ = subject.facts
    online = facts["cpu"]["threads"]
    allowed = len(os.sched_getaffinity(0))
    group: dict[str, Any] = facts["cgroup"] or {}
    quota, ceiling, cpuset = (group.get(name) for name in ("cpu_limit", "memory_limit_bytes", "cpuset"))
    if cpuset:
        allowed = min(allowed, len(expand_list(cpuset)))
    found = f"{allowed} of {online if online is not None else 'unknown'} processors"
    found += f", CPU quota {quota}" if quota else ", no CPU quota"
    found += f", memory limit {gigabytes(ceiling)}" if ceiling else ", no memory limit"
    if slurm := os.environ.get("SLURM_JOB_ID"):
        found += f", in Slurm job {slurm}"
    cores = min(Decimal(allowed), Decimal(quota or allowed))
    if cores < 2 or (ceiling is not None and ceiling < _LITTLE_MEMORY):
        fix = "request more: sbatch --cpus-per-task=8 --mem=32G, or raise the container's limits"
        yield DoctorCheck("allocation", WARN, found, fix)
    else:
        yield DoctorCheck("allocation", OK, found)


def other_processes(subject: Subject) -> Iterator[DoctorCheck]:
    """The names of other processes that use the processors now."""
    del subject
    load = f"load {os.getloadavg()[0]:.2f}"
    before = _cpu_seconds()
    time.sleep(OBSERVATION_S)
    others = sorted(
        {
            name
            for pid, (name, used) in _cpu_seconds().items()
            if used - before.get(pid, (name, 0.0))[1] > BUSY_SHARE * OBSERVATION_S and not _ours(pid)
        }
    )
    if others:
        found = f"{load}; busy now: {', '.join(others[:5])}{' and more' if len(others) > 5 else ''}"
        yield DoctorCheck(
            "other processes", WARN, found, "wait for them or end them: they share the processors"
        )
    else:
        yield DoctorCheck(
            "other processes", OK, f"{load}; no other process uses over {BUSY_SHARE:.0%} of a core"
        )


def _cpu_seconds() -> dict[int, tuple[str, float]]:
    found = {}
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
            found[process.pid] = (process.name(), times.user + times.system)
        except psutil.Error:  # it has ended
            continue
    return found


def _ours(pid: int) -> bool:
    try:
        return descends(pid, os.getpid())
    except Unavailable:
        return False


def disks(subject: Subject) -> Iterator[DoctorCheck]:
    """Whether the folders of the path options are writable and have free space."""
    for option in ("data_root", "results_dir", "cache_dir"):
        name, folder = f"disk {option}", getattr(subject, option).absolute()
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        fix = f"set {option.upper()} to a folder that can be written"
        read_only = bool(os.statvfs(existing).f_flag & os.ST_RDONLY)
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK) or read_only:
            yield DoctorCheck(name, FAIL, f"{folder} cannot be written", fix)
            continue
        free = subject.free_bytes(existing)
        found = f"{gigabytes(free)} free for {folder}"
        if free < NEEDED_BYTES:
            yield DoctorCheck(
                name, FAIL, f"{found}: expected {gigabytes(NEEDED_BYTES)}", f"free disk space, or {fix}"
            )
        elif free < COMFORT_BYTES:
            found += ": may be too little for environments and datasets"
            yield DoctorCheck(name, WARN, found, f"free disk space, or set {option.upper()} to another disk")
        else:
            yield DoctorCheck(name, OK, found)


NEEDED_BYTES = 64 << 20  # with less, a run is refused
COMFORT_BYTES = 10 * 10**9
