"""One worker outside of a run, for tools that ask it for numbers: native, and ended with its scratch."""

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

HOURS_S = 4 * 3600.0  # for any answer: nobody waits in front of it


@dataclass(frozen=True)
class Place:
    """Where a worker computes."""

    device: str = "cpu"
    threads: int = 1
    python: Path | None = None  # None: the environment of the framework

    def interpreter(self, framework: str) -> Path:
        """What it runs in; EnvironmentMissing where nothing is locked for the device."""
        return self.python or environments.plan(framework, self.device.partition(":")[0]).python


@contextmanager
def configured(framework: str, place: Place, job: Mapping[str, Any]) -> Iterator[WorkerProcess]:
    """A worker that has heard of ``job`` at ``place`` and said hello. WorkerFailure where it does not."""
    visible = "" if place.device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        workers = NativeWorkers(place.interpreter(framework), place.threads, "passive", visible)
        with WorkerProcess(workers.command(0, scratch, None), Path(folder, "debug.log")) as worker:
            at = {"device": place.device, "threads": place.threads, "scratch_dir": str(scratch)}
            worker.configure({**job, **at})
            worker.expect("hello", HOURS_S)
            yield worker
            worker.expect("done", HOURS_S)
