"""One native worker outside of a run, for tools that compute numbers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.containers.engines.workers import NativeWorkers
from suite.environments import environments
from suite.harness.worker_process import WorkerProcess

HOURS_S = 4 * 3600.0  # timeout of every event


@dataclass(frozen=True)
class WorkerLocation:
    """The device, threads and interpreter of a worker."""

    device: str = "cpu"
    threads: int = 1
    python: Path | None = None  # None: the environment of the framework

    def interpreter(self, framework: str) -> Path:
        """The interpreter; EnvironmentMissing if there is no lock for the device, or no environment yet."""
        if self.python is not None:
            return self.python
        accelerator = self.device.partition(":")[0]
        found = environments.plan(framework, accelerator)
        if not found.ready:
            command = f"python -m suite environments --accelerator {accelerator} {framework}"
            raise environments.EnvironmentMissing(f"{found.name} is missing: `{command}` makes it")
        return found.python


@contextmanager
def configured_worker(
    framework: str, location: WorkerLocation, job: Mapping[str, Any]
) -> Iterator[WorkerProcess]:
    """A configured worker for ``job`` at ``location``, after its event ``hello``. Raises WorkerFailure."""
    visible = "" if location.device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        workers = NativeWorkers(location.interpreter(framework), location.threads, "passive", visible)
        with WorkerProcess(workers.command(0, scratch, None), Path(folder, "debug.log")) as worker:
            at = {"device": location.device, "threads": location.threads, "scratch_dir": str(scratch)}
            worker.configure({**job, **at})
            worker.expect("hello", HOURS_S)
            yield worker
            worker.expect("done", HOURS_S)
