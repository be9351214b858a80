"""Digests, memory, threads and versions that a worker reports beside its times."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import sys
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from suite.common.image_reader import DeviceImages
from suite.common.stream import digest_arrays
from suite.contract import STEPS, BadData, Data, ShapedData
from suite.worker.probe import LABEL_BYTES, LABEL_FILE
from suite.worker.sample import Sample
from suite.workloads import CUSTOM_PAIR

# ld.so(8), CUPTI and NVTX: each names a library that is loaded before all others or that intercepts calls.
INJECTING = ("LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
KEPT_BYTES = 256 << 20  # of recorded batches; 110 batches of 256 images of 224 pixels would be 4.2 GB


class RecordingData:
    """Passes batches on, records them for their digests, and counts the time spent waiting.

    It keeps those batches of the first 110 steps that are in host memory, up to ``KEPT_BYTES`` together, and
    only a sample of each other one: :meth:`digests` reads that batch again after the window, and its sample
    must be the same, because a batch is a pure function of dataset, seed and step. Only :meth:`digests`
    computes hashes. A quality run has no digests of batches: with ``recording`` off nothing is recorded.
    """

    def __init__(self, data: Data, *, recording: bool = True) -> None:
        self._data = data
        self.steps_per_epoch = data.steps_per_epoch
        self.wait_ns = 0
        self._recording = recording
        self._kept_bytes = 0
        self._seen: dict[int, dict[str, Any] | Sample] = {}

    def slot(self, step: int) -> int | None:
        """See :class:`suite.contract.Data`."""
        return self._data.slot(step)

    def first_of_each_shape(self) -> list[int]:
        """A step with each shape, or the first one with each staged batch."""
        if isinstance(self._data, ShapedData):
            return self._data.first_of_each_shape()
        first: dict[int | None, int] = {}
        for step in range(STEPS):
            first.setdefault(self._data.slot(step), step)
        return list(first.values())

    def batch(self, step: int) -> dict[str, Any]:
        """See :class:`suite.contract.Data`. The time to take a sample counts as waiting."""
        start = monotonic_ns()
        arrays = self._data.batch(step)
        if self._recording:
            key = self._key(step)
            if key not in self._seen:  # record a step once: the telemetry tail reads the window's steps again
                self._seen[key] = arrays if key < 0 else self._arrays_or_sample(step, arrays)
        self.wait_ns += monotonic_ns() - start
        return arrays

    def _key(self, step: int) -> int:
        """The step, or a negative number for each staged slot."""
        slot = self._data.slot(step)
        return step if slot is None else -1 - slot

    def _arrays_or_sample(self, step: int, arrays: dict[str, Any]) -> dict[str, Any] | Sample:
        size = sum(array.nbytes for array in arrays.values())
        on_gpu = any(isinstance(array, DeviceImages) for array in arrays.values())
        if on_gpu or step >= STEPS or self._kept_bytes + size > KEPT_BYTES:
            return Sample.of(step, arrays)
        self._kept_bytes += size
        return arrays

    def evaluation(self) -> Any:
        """See :class:`suite.contract.Data`."""
        return self._data.evaluation()

    def digests(self, steps: Iterable[int]) -> list[str]:
        """SHA-256 of the batches of ``steps``, after the window; BadData if one read again is another.

        Threads hash batches while the next ones are read: a core hashes some 3,000 images of 224 pixels a
        second, and a GPU decodes more. At most ``KEPT_BYTES`` of batches wait for their hash.
        """
        hashes: dict[int, Future[str]] = {}
        waiting: deque[tuple[Future[str], int]] = deque()
        waiting_bytes, keys = 0, []
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for step in steps:
                key = self._key(step)
                keys.append(key)
                if key in hashes:
                    continue
                arrays = self._recorded(step, key)
                hashes[key] = pool.submit(digest_arrays, arrays)
                size = sum(array.nbytes for array in arrays.values())
                waiting.append((hashes[key], size))
                waiting_bytes += size
                while waiting_bytes > KEPT_BYTES:
                    earliest, size = waiting.popleft()
                    earliest.result()
                    waiting_bytes -= size
            return [hashes[key].result() for key in keys]

    def _recorded(self, step: int, key: int) -> dict[str, Any]:
        """The batch of ``step`` in host memory, which is no longer kept here."""
        if key not in self._seen:
            raise RuntimeError(
                f"step {step}: expected a recorded batch, found none: the step did not read it"
            )
        seen = self._seen.pop(key)
        if not isinstance(seen, Sample):
            return seen
        arrays = self._data.batch(step)
        if (name := seen.first_difference(arrays)) is not None:
            raise BadData(
                f"{name} of step {step}: expected the values that the step used, found others when they were "
                "read again after the window; the dataset changed, or a batch depends on more than its step"
            )
        return {name: np.asarray(array) for name, array in arrays.items()}

    def forget(self) -> None:
        """Drop the batches of compilation and soak, but keep staged slots, which are read only once."""
        self._seen = {key: arrays for key, arrays in self._seen.items() if key < 0}
        self._kept_bytes = self.wait_ns = 0


def modules_digest() -> str:
    """SHA-256 over the contents of all loaded modules of the suite and of a custom pair, in name order."""
    digest = hashlib.sha256()
    for name in sorted(sys.modules):
        path = getattr(sys.modules[name], "__file__", None)
        if path and (name in ("suite", CUSTOM_PAIR) or name.startswith("suite.")):
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()


def image_label(path: Path) -> tuple[dict[str, str] | None, str]:
    """The label of the container image (at most 64 texts, 16 KiB), or None and the reason."""
    try:
        with path.open("rb") as file:
            content = file.read(LABEL_BYTES + 1)
    except FileNotFoundError:
        return None, "there is no label file: the suite did not build this container image"
    except OSError as error:
        return None, f"the label file cannot be read: {error.strerror}"
    if len(content) > LABEL_BYTES:
        return None, f"the label file has more than {LABEL_BYTES} bytes"
    try:
        label = json.loads(content)
    except (ValueError, RecursionError):
        return None, "the label file is not JSON"
    if not isinstance(label, dict) or len(label) > 64 or not all(_plain(*item) for item in label.items()):
        return None, "the label file is not an object of plain texts"
    return label, ""


def _plain(name: str, value: object) -> bool:
    """Whether name and value are printable ASCII, as the log requires."""
    texts = isinstance(value, str) and name.isascii() and value.isascii()
    return texts and 0 < len(name) <= 128 and f"{name}{value}".isprintable()


def array_digest(array: Any) -> str:
    """SHA-256 of one output."""
    return digest_arrays({"output": array})


def peak_rss_bytes() -> int:
    """Peak resident memory of this process in bytes.

    Linux passes ``ru_maxrss`` of a parent on through fork and exec, so that a worker of a large process would
    report the memory of that process. It is used only where /proc has no peak (gVisor).
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def scaling(framework: Any) -> dict[str, float] | None:
    """The loss scale and the number of skipped steps, None without scaling; waits for the device."""
    report: dict[str, float] | None = framework.scaling.report()
    return report


def loss_scale(before: dict[str, float] | None, after: dict[str, float] | None) -> dict[str, Any]:
    """The field ``loss_scale`` of the report for the steps between two readings; empty without scaling."""
    if before is None or after is None:
        return {}
    first, last = before["scale"].hex(), after["scale"].hex()
    skipped = {"skipped_before": before["skipped"], "skipped": after["skipped"] - before["skipped"]}
    return {"loss_scale": {"first": first, "last": last, **skipped}}


def thread_count() -> int:
    """Threads of this process as the kernel counts them."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return threading.active_count()


def custom_pair_digest() -> str | None:
    """SHA-256 of the file of the loaded custom pair; None if the pair is the suite's."""
    module = sys.modules.get(CUSTOM_PAIR)
    path = getattr(module, "__file__", None)
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


def injected() -> list[str]:
    """Names of the variables and files, if set, that inject code into the worker; never their values."""
    variables = [name for name in INJECTING if os.environ.get(name)]
    system = Path("/etc/ld.so.preload")
    return sorted(variables) + ([system.name] if system.exists() and system.stat().st_size else [])


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers as the kernel lists processors: ``0-3,8``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def facts(described: dict[str, Any], decoder: str | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Versions and settings inside the container, and the reasons for null values, by name.

    ``described`` is the result of the framework's ``describe``: the harness explains its nulls. Facts have
    ``custom_pair`` only with a custom pair, and ``decoder`` only where image files are read.
    """
    label, why = image_label(LABEL_FILE)
    custom_pair = custom_pair_digest()
    policy = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND")}
    found = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "affinity": _ranges(sorted(os.sched_getaffinity(0))),
        "openmp": policy,
        "framework": described,
        "image_label": label,
        "injected": injected(),
    }
    if custom_pair is not None:
        found["custom_pair"] = custom_pair
    if decoder is not None:
        found["decoder"] = decoder
    return found, {} if label is not None else {"image_label": why}
