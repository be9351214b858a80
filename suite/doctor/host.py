"""The machine around a run: tools, memory, processors, clocks, limits, and who else uses them."""

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

from suite.doctor.model import FAIL, OK, SKIP, WARN, Check, Subject, gigabytes
from suite.telemetry.load import BUSY_SHARE
from suite.telemetry.process import descends
from suite.telemetry.reading import Unavailable, expand_list

LOOK_S = 0.5
_ASK_S = 10.0
_LITTLE_SHM = 1 << 30  # bytes: what loaders and NCCL may want in a native run
_LITTLE_MEMORY = 8 * 10**9
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_NOFILE = 4096
_TIME_ERROR = 5  # of adjtimex(2): the clock is not synchronised
_TIMEX_BYTES = 512  # its structure is smaller


def python(subject: Subject) -> Iterator[Check]:
    """The interpreter of the suite itself."""
    del subject
    found = f"Python {platform.python_version()} for {platform.machine()}"
    own = "the suite's own environment" if sys.prefix != sys.base_prefix else "no environment of its own"
    yield Check("python", OK, f"{found}, {own}")


def make(subject: Subject) -> Iterator[Check]:
    """GNU make, which the documented commands need."""
    del subject
    if shutil.which("make") is None:
        yield Check("make", WARN, "not on PATH: `python -m suite` serves alone", "install GNU make")
        return
    done = subprocess.run(["make", "--version"], capture_output=True, text=True, timeout=_ASK_S, check=False)
    first = (done.stdout.splitlines() or [""])[0]
    if first.startswith("GNU Make"):
        yield Check("make", OK, first)
    else:
        yield Check("make", WARN, f"expected GNU Make, found {first or 'no version'}", "install GNU make")


def processors(subject: Subject) -> Iterator[Check]:
    """The processors and how their speed is set."""
    facts, reasons = subject.facts
    cpu = facts["cpu"]
    yield Check(
        "CPU", OK, f"{cpu['model']}: sockets {cpu['sockets']}, cores {cpu['cores']}, threads {cpu['threads']}"
    )
    governor = cpu["governor"]
    if governor is None:
        yield Check("CPU governor", SKIP, f"not readable: {reasons['cpu.governor']}")
    elif governor == "performance":
        yield Check("CPU governor", OK, governor)
    else:
        fix = "sudo cpupower frequency-set --governor performance"
        yield Check("CPU governor", WARN, f"{governor}: expected performance, for steady step times", fix)
    turbo = {True: "on", False: "off", None: "not readable"}[cpu["turbo"]]
    yield Check("CPU turbo, SMT", OK, f"turbo {turbo}, SMT {cpu['smt'] or 'not readable'}")


def shared_memory(subject: Subject) -> Iterator[Check]:
    """The machine's own /dev/shm, which native runs use; containers have their own."""
    name = "shared memory"
    state = os.statvfs(subject.root / "dev/shm")
    size = state.f_blocks * state.f_frsize
    if size < _LITTLE_SHM:
        fix = "sudo mount -o remount,size=16g /dev/shm"
        yield Check(name, WARN, f"{gigabytes(size)}: little for native runs", fix)
    else:
        yield Check(name, OK, f"{gigabytes(size)}, {gigabytes(state.f_bavail * state.f_frsize)} free")


def memory(subject: Subject) -> Iterator[Check]:
    """Memory, swap in use, and huge pages."""
    total, free = psutil.virtual_memory().total, psutil.virtual_memory().available
    found = f"{gigabytes(total)}, {gigabytes(free)} available"
    if free < _LITTLE_MEMORY:
        yield Check("memory", WARN, found, "end what uses it before a run at reference scale")
    else:
        yield Check("memory", OK, found)
    swap = psutil.swap_memory()
    used = f"{gigabytes(swap.used)} of {gigabytes(swap.total)} used"
    if swap.used > swap.total / 10:
        yield Check(
            "swap", WARN, f"{used}: steps would wait for it", "end what uses it, then sudo swapoff -a"
        )
    else:
        yield Check("swap", OK, used if swap.total else "none")
    pages = subject.facts[0]["memory"]["huge_pages"]
    yield Check("huge pages", OK, f"transparent: {pages}" if pages else "not told by this kernel")


def clocks(subject: Subject) -> Iterator[Check]:
    """The kernel's clock source, and whether the time of day is kept right."""
    facts, reasons = subject.facts
    source = facts["kernel"]["clocksource"]
    if source is None:
        yield Check("clock source", SKIP, f"not readable: {reasons['kernel.clocksource']}")
    elif source in _SLOW_CLOCKS:
        fix = "boot with clocksource=tsc, if `dmesg` does not call the TSC unstable"
        yield Check("clock source", WARN, f"{source}: each reading is slow", fix)
    else:
        yield Check("clock source", OK, source)
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state < 0:
        yield Check("time of day", SKIP, "the kernel does not tell whether it is synchronised")
    elif state == _TIME_ERROR:
        what = "not synchronised by this kernel's account: logs may bear a wrong date"
        yield Check("time of day", WARN, what, "sudo timedatectl set-ntp true")
    else:
        yield Check("time of day", OK, "synchronised")


def user_limits(subject: Subject) -> Iterator[Check]:
    """What the shell lets a process open and lock."""
    del subject
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    found = f"{_amount(files)} open files, {_amount(locked, size=True)} of locked memory"
    if files != resource.RLIM_INFINITY and files < _NOFILE:
        yield Check("ulimit", WARN, f"{found}: expected {_NOFILE} files", f"ulimit -n {_NOFILE}")
    else:
        yield Check("ulimit", OK, found)


def _amount(value: int, *, size: bool = False) -> str:
    if value == resource.RLIM_INFINITY:
        return "unlimited"
    return gigabytes(value) if size else str(value)


def allocation(subject: Subject) -> Iterator[Check]:
    """What this very process may use: an allocation of Slurm or a container around it counts."""
    facts, _ = subject.facts
    online = facts["cpu"]["threads"]
    allowed = len(os.sched_getaffinity(0))
    group: dict[str, Any] = facts["cgroup"] or {}
    quota, ceiling, cpuset = (group.get(word) for word in ("cpu_limit", "memory_limit_bytes", "cpuset"))
    if cpuset:
        allowed = min(allowed, len(expand_list(cpuset)))
    found = f"{allowed} of {online if online is not None else 'unknown'} processors"
    found += f", time of {quota}" if quota else ", no quota"
    found += f", {gigabytes(ceiling)} of memory" if ceiling else ", no limit of memory"
    if slurm := os.environ.get("SLURM_JOB_ID"):
        found += f", in Slurm's job {slurm}"
    cores = min(Decimal(allowed), Decimal(quota or allowed))
    if cores < 2 or (ceiling is not None and ceiling < _LITTLE_MEMORY):
        fix = "ask for more: sbatch --cpus-per-task=8 --mem=32G, or the limits of the container around this"
        yield Check("allocation", WARN, found, fix)
    else:
        yield Check("allocation", OK, found)


def busy(subject: Subject) -> Iterator[Check]:
    """Who else uses the processors now: names only."""
    del subject
    load = f"load {os.getloadavg()[0]:.2f}"
    before = _cpu_seconds()
    time.sleep(LOOK_S)
    others = sorted(
        {
            name
            for pid, (name, used) in _cpu_seconds().items()
            if used - before.get(pid, (name, 0.0))[1] > BUSY_SHARE * LOOK_S and not _ours(pid)
        }
    )
    if others:
        what = f"{load}; busy now: {', '.join(others[:5])}{' and more' if len(others) > 5 else ''}"
        yield Check("other processes", WARN, what, "wait for them or end them: they share the processors")
    else:
        yield Check("other processes", OK, f"{load}; no other process uses over {BUSY_SHARE:.0%} of a core")


def _cpu_seconds() -> dict[int, tuple[str, float]]:
    found = {}
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
            found[process.pid] = (process.name(), times.user + times.system)
        except psutil.Error:  # it ended meanwhile
            continue
    return found


def _ours(pid: int) -> bool:
    try:
        return descends(pid, os.getpid())
    except Unavailable:
        return False


def disks(subject: Subject) -> Iterator[Check]:
    """The places of data, results and caches: writable, and with room."""
    for word in ("data_root", "results_dir", "cache_dir"):
        name, folder = f"disk {word}", getattr(subject, word).absolute()
        place = next(path for path in (folder, *folder.parents) if path.exists())
        fix = f"set {word.upper()} to a folder that can be written"
        read_only = bool(os.statvfs(place).f_flag & os.ST_RDONLY)
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK) or read_only:
            yield Check(name, FAIL, f"{folder} cannot be written", fix)
            continue
        free = subject.free_bytes(place)
        found = f"{gigabytes(free)} free for {folder}"
        if free < NEEDED_BYTES:
            yield Check(name, FAIL, f"{found}: expected {gigabytes(NEEDED_BYTES)}", f"free some, or {fix}")
        elif free < COMFORT_BYTES:
            what = f"{found}: little for environments and datasets"
            yield Check(name, WARN, what, f"free some, or set {word.upper()} to another disk")
        else:
            yield Check(name, OK, found)


NEEDED_BYTES = 64 << 20  # a run refuses with less
COMFORT_BYTES = 10 * 10**9
