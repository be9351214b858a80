"""What a worker reports beside its times: digests, memory, threads, versions."""

from __future__ import annotations

import hashlib
import os
import platform
import resource
import sys
import threading
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from suite.workloads.contract import Data
from suite.workloads.stream import digest_arrays


class RecordingData:
    """Hands batches through, keeps what was handed out for digests, and counts the time spent waiting."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self.steps_per_epoch = data.steps_per_epoch
        self.wait_ns = 0
        self._seen: dict[int, dict[str, Any]] = {}
        self._digests: dict[int, str] = {}

    def slot(self, step: int) -> int | None:
        """See :class:`suite.workloads.contract.Data`."""
        return self._data.slot(step)

    def batch(self, step: int) -> dict[str, Any]:
        """See :class:`suite.workloads.contract.Data`."""
        start = monotonic_ns()
        arrays = self._data.batch(step)
        self.wait_ns += monotonic_ns() - start
        slot = self._data.slot(step)
        self._seen[step if slot is None else -1 - slot] = arrays
        return arrays

    def evaluation(self) -> Any:
        """See :class:`suite.workloads.contract.Data`."""
        return self._data.evaluation()

    def digest(self, step: int) -> str:
        """SHA-256 of the arrays that step ``step`` was given (hashed after the window, once each)."""
        slot = self._data.slot(step)
        at = step if slot is None else -1 - slot
        if at not in self._digests:
            if at not in self._seen:
                raise RuntimeError(f"step {step} never asked for its batch")
            self._digests[at] = digest_arrays(self._seen[at])
        return self._digests[at]

    def forget(self) -> None:
        """Drop what compilation and soak asked for, but keep staged slots: they are asked for once."""
        self._seen = {at: arrays for at, arrays in self._seen.items() if at < 0}
        self.wait_ns = 0


def modules_digest() -> str:
    """SHA-256 over the contents of all loaded modules of the suite, in name order."""
    digest = hashlib.sha256()
    for name in sorted(sys.modules):
        path = getattr(sys.modules[name], "__file__", None)
        if path and (name == "suite" or name.startswith("suite.")):
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()


def array_digest(array: Any) -> str:
    """SHA-256 of one output."""
    return digest_arrays({"output": array})


def peak_rss_bytes() -> int:
    """Peak resident memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def thread_count() -> int:
    """Threads of this process as the kernel counts them."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return threading.active_count()


def read_bytes() -> int | None:
    """Bytes that this process had fetched from storage; None where the kernel does not say."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    return int(text.split("read_bytes:")[1].split()[0])


def facts(described: dict[str, Any]) -> dict[str, Any]:
    """Versions and settings as seen from inside; ``described`` is the framework's own account."""
    policy = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND")}
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "affinity": len(os.sched_getaffinity(0)),
        "openmp": policy,
        "framework": described,
    }
