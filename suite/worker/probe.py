"""What a worker would find in its container: one JSON object on stdout, for the doctor.

Started by the very command that starts a worker but for the module. It waits for a line on stdin,
so that it can be looked at from outside meanwhile; the end of stdin ends it, as it ends a worker.
Standard library only: the image may hold nothing but Python.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import socket
import sys
from pathlib import Path
from time import monotonic_ns
from typing import Any

LABEL_FILE = Path("/etc/suite-image.json")
CLOSED = ("/", "/etc", "/opt", "/data")  # where nothing may be written
READ_ONLY = ("/", "/data")  # what is mounted so: a user who is not root could write to little of it anyway
OPEN = ("/scratch", "/tmp")  # noqa: S108 - the container's own
_LABEL_BYTES = 16 << 10
# Addresses for documentation (RFC 5737, RFC 3849): a route to them is a route to everywhere.
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_LIMITS = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
    "nofile": resource.RLIMIT_NOFILE,
}


def main() -> int:
    """Answer once; exit status 0 also where nobody asked any more."""
    if not sys.stdin.buffer.readline():
        return 0
    report = {"monotonic_ns": monotonic_ns(), **look()}  # the clock first: it is compared with the asker's
    print(json.dumps(report), flush=True)
    return 0


def look() -> dict[str, Any]:
    """User, writable places, network, shared memory (bytes), limits (bytes, -1: none), GPUs, label."""
    memory = os.statvfs("/dev/shm")  # noqa: S108
    status = _status()
    return {
        "python": platform.python_version(),
        "user": [os.geteuid(), os.getegid()],
        "capabilities": status.get("CapEff", "").lstrip("0"),
        "no_new_privileges": status.get("NoNewPrivs") == "1",
        "writable": [place for place in (*CLOSED, *OPEN) if writable(place)],
        "read_only": [place for place in READ_ONLY if read_only(place)],
        "network": sorted({address for family, address in _FAR if route(family, address)}),
        "shm_bytes": memory.f_blocks * memory.f_frsize,
        "limits": {name: resource.getrlimit(number)[0] for name, number in _LIMITS.items()},
        "gpu": gpu(),
        "label": label(),
    }


def writable(place: str) -> bool:
    """Whether a file can be made in ``place``; False also where there is no such folder."""
    path = Path(place) / f".suite-probe-{os.getpid()}"
    try:
        path.touch(exist_ok=False)
        path.unlink()
    except OSError:
        return False
    return True


def read_only(place: str) -> bool:
    """Whether ``place`` lies on a file system that is mounted read-only; False also where there is none."""
    try:
        return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def route(family: int, address: str) -> bool:
    """Whether the kernel knows a way to ``address``; connecting a datagram socket sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
    except OSError:
        return False
    return True


def gpu() -> dict[str, Any]:
    """The device files of NVIDIA, and how many devices CUDA's driver library counts, or why it does not."""
    files = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    found: dict[str, Any] = {"files": files, "devices": None, "driver_cuda": None, "problem": None}
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        found["problem"] = "libcuda.so.1 cannot be loaded"
        return found
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGetCount", (ctypes.byref(count),)),
        ("cuDriverGetVersion", (ctypes.byref(version),)),
    ):
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            found["problem"] = f"{name} fails with CUDA error {code}"
            return found
    found["devices"] = count.value
    found["driver_cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return found


def label() -> Any:
    """What the image says of itself; None where it has no label file, or none that is JSON."""
    try:
        with LABEL_FILE.open("rb") as file:
            return json.loads(file.read(_LABEL_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _status() -> dict[str, str]:
    """What the kernel says of this process."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    raise SystemExit(main())
