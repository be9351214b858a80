"""The environment of a worker in its container, as one JSON object on stdout, for the doctor.

The command is that of a worker, except for the module. The process waits for a line on stdin, so that the
doctor can inspect it from outside meanwhile; the end of stdin ends it, as it ends a worker. Standard library
only: the container image may contain nothing but Python.
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

LABEL_FILE = Path("/etc/suite-image.json")  # part of every container image of a pair
NOT_WRITABLE = ("/", "/etc", "/opt", "/data")
READ_ONLY = ("/", "/data")  # by their mount: a user who is not root cannot write to most folders anyway
WRITABLE = ("/scratch", "/tmp")  # noqa: S108 - inside the container
LABEL_BYTES = 16 << 10
# Addresses for documentation (RFC 5737, RFC 3849): only a default route leads to them.
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_LIMITS = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
    "nofile": resource.RLIMIT_NOFILE,
}


def main() -> int:
    """Answer one line of stdin; exit status 0 also at the end of stdin without a line."""
    if not sys.stdin.buffer.readline():
        return 0
    report = {"monotonic_ns": monotonic_ns(), **inspect()}  # clock first: compared with that of the doctor
    print(json.dumps(report), flush=True)
    return 0


def inspect() -> dict[str, Any]:
    """User, writable folders, network, shared memory (bytes), limits (bytes, -1: none), GPUs, label."""
    memory = os.statvfs("/dev/shm")  # noqa: S108
    status = _status()
    return {
        "python": platform.python_version(),
        "user": [os.geteuid(), os.getegid()],
        "capabilities": status.get("CapEff", "").lstrip("0"),
        "no_new_privileges": status.get("NoNewPrivs") == "1",
        "writable": [folder for folder in (*NOT_WRITABLE, *WRITABLE) if writable(folder)],
        "read_only": [folder for folder in READ_ONLY if read_only(folder)],
        "network": sorted({address for family, address in _FAR if route(family, address)}),
        "shm_bytes": memory.f_blocks * memory.f_frsize,
        "limits": {name: resource.getrlimit(number)[0] for name, number in _LIMITS.items()},
        "gpu": gpu(),
        "label": label(),
    }


def writable(folder: str) -> bool:
    """Whether a file can be created in ``folder``; False also if the folder does not exist."""
    path = Path(folder) / f".suite-probe-{os.getpid()}"
    try:
        path.touch(exist_ok=False)
        path.unlink()
    except OSError:
        return False
    return True


def read_only(folder: str) -> bool:
    """Whether the file system of ``folder`` is mounted read-only; False also if it does not exist."""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def route(family: int, address: str) -> bool:
    """Whether the kernel has a route to ``address``; connecting a datagram socket sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
    except OSError:
        return False
    return True


def gpu() -> dict[str, Any]:
    """NVIDIA's device files, and the number of devices of CUDA's driver library, or its problem."""
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
    """The label of the container image; None if it has no label file, or one that is not JSON."""
    try:
        with LABEL_FILE.open("rb") as file:
            return json.loads(file.read(LABEL_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _status() -> dict[str, str]:
    """The fields of ``/proc/self/status``."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    raise SystemExit(main())
