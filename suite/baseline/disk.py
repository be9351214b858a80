"""The disk group of a baseline: fio on files in a folder of the user's choice, never on a device.

The files hold random bytes, because some disks store zeros for nothing, and are removed afterwards. Their
size is limited to a twentieth of the free space. Without O_DIRECT, which some file systems refuse, the page
cache answers: the method then says "through the page cache".
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suite.metrics.baseline import WINDOWS
from suite.telemetry.storage import storage_facts

LARGEST, LARGEST_QUICK = 4 << 30, 1 << 30  # bytes of a file
SMALLEST = 64 << 20
_FREE_PARTS = 20
SECONDS: tuple[float, float] = (2, 5)  # of a window: quick, full
_BLOCK = 4 << 20
# Series -> fio's operation, block size in bytes, depth of the queue, unit, and work per operation.
JOBS = {
    "disk.read": ("read", 1 << 20, 8, "byte", 1 << 20),
    "disk.write": ("write", 1 << 20, 8, "byte", 1 << 20),
    "disk.random_read_1": ("randread", 4096, 1, "operation", 1),
    "disk.random_read_32": ("randread", 4096, 32, "operation", 1),
}
NO_FIO = "fio is not installed: sudo apt-get install fio"
Emit = Callable[[str, dict[str, Any]], None]


class DiskProblem(Exception):
    """The disk cannot be measured; the message states the reason and the fix."""


class WrongData(Exception):
    """The disk returned other bytes than were written."""


def measure(folder: Path, quick: bool, emit: Emit) -> None:
    """Measure and pass events of the log (kind, data) to ``emit``. DiskProblem, WrongData."""
    program = shutil.which("fio")
    if program is None:
        for name in JOBS:
            emit("missing", {"name": name, "reason": NO_FIO})
        return
    if not folder.is_dir():
        raise DiskProblem(f"DISK: expected an existing folder, found {folder}")
    free = shutil.disk_usage(folder).free
    size = min(LARGEST_QUICK if quick else LARGEST, free // _FREE_PARTS) // _BLOCK * _BLOCK
    if size < SMALLEST:
        raise DiskProblem(
            f"DISK: expected {_FREE_PARTS * SMALLEST / 1e9:.1f} GB of free space, found {free / 1e9:.1f} GB: "
            "free some, or name another folder"
        )
    facts, reasons = storage_facts({"disk": folder})
    version = _output([program, "--version"])
    emit("facts", {"source": "disk", "facts": {**facts["disk"], "fio": version}, "reasons": reasons})
    seconds = SECONDS[not quick]
    with _files(folder, size) as (read, write, digest):
        direct = _direct(read)
        how = "O_DIRECT" if direct else "through the page cache"
        method = f"{version}, {facts['disk']['filesystem']}, file of {size >> 20} MiB, {how}, {seconds} s"
        for name, (_, block, depth, unit, work) in JOBS.items():
            # Without O_DIRECT fio has one request at a time, whatever depth is asked for.
            text = f"{method}, {block >> 10} KiB, queue depth {depth if direct else 1}"
            emit("series", {"name": name, "unit": unit, "work": work, "method": text})
        names = list(JOBS)
        for window in range(WINDOWS):
            for name in names if window % 2 == 0 else names[::-1]:
                file = write if name == "disk.write" else read
                calls, elapsed = _window(program, name, file, size, direct, seconds)
                emit("window", {"name": name, "window": window, "calls": calls, "elapsed_ns": elapsed})
        if _digest(read) != digest:
            raise WrongData(f"the file read in {folder} differs from what was written: replace the disk")
        for name in JOBS:
            emit("check", {"name": name, "error": "0", "limit": "0"})


@contextmanager
def _files(folder: Path, size: int) -> Iterator[tuple[Path, Path, str]]:
    """A file of random bytes to read, one to write over, and the digest of the first; removed at the end."""
    own = Path(tempfile.mkdtemp(prefix=".suite-baseline-", dir=folder))
    try:
        read, write = own / "read", own / "write"
        digest = hashlib.sha256()
        with read.open("wb") as first, write.open("wb") as second:
            for _ in range(size // _BLOCK):
                block = os.urandom(_BLOCK)
                digest.update(block)
                first.write(block)
                second.write(block)
            for file in (first, second):
                file.flush()
                os.fsync(file.fileno())
        yield read, write, digest.hexdigest()
    finally:
        shutil.rmtree(own)


def _digest(path: Path) -> str:
    """SHA-256 of a file, read from the disk where the kernel drops its pages of the cache on request."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _direct(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def _window(program: str, name: str, path: Path, size: int, direct: bool, seconds: float) -> tuple[int, int]:
    """The operations of one window and its ns, as fio counts them."""
    operation, block, depth, *_ = JOBS[name]
    engine = "libaio" if direct else "psync"
    text = _output(
        [
            program, "--name=baseline", f"--filename={path}", f"--size={size}", f"--rw={operation}",
            f"--bs={block}", f"--iodepth={depth}", f"--ioengine={engine}", f"--direct={int(direct)}",
            f"--runtime={round(seconds * 1000)}ms", "--time_based", "--randrepeat=0", "--norandommap",
            "--fallocate=none", "--allow_file_create=0", "--output-format=json",
        ],
        timeout=60 + 10 * seconds,
    )  # fmt: skip
    try:
        job = json.loads(text[text.index("{") :])["jobs"][0]
        found = job["write" if operation == "write" else "read"]
        calls, elapsed = int(found["total_ios"]), int(found["runtime"]) * 1_000_000
    except (ValueError, LookupError, TypeError) as error:
        raise DiskProblem(f"fio: expected its JSON output, found {text[:200]!r}") from error
    if job["error"] or calls < 1 or elapsed < 1:
        raise DiskProblem(f"fio: {name} failed with error {job['error']} after {calls} operations")
    return calls, elapsed


def _output(command: list[str], timeout: float = 20) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskProblem(f"fio: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise DiskProblem(f"fio ended with {done.returncode}: {' '.join(last)[:300]}")
    return done.stdout.strip()
