"""What the repeats of one run share: plan, log, places, limits, progress."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.datasets.evict import evict
from suite.harness.log import LogWriter
from suite.harness.progress import Progress
from suite.telemetry.nvml import Devices

if TYPE_CHECKING:
    from suite.harness.worker_process import WorkerProcess
    from suite.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a worker may stay silent, in seconds."""

    setup_s: float = 1800.0
    steps_s: float = 3600.0


@dataclass
class Session:
    """One run in progress."""

    plan: Plan
    log: LogWriter
    outside: dict[str, Any]  # facts and reasons of the outside ``env`` event
    progress: Progress
    debug_dir: Path
    devices: Devices
    limits: Timeouts = field(default_factory=Timeouts)
    worker: WorkerProcess | None = None
    _scratch: Path | None = None

    def scratch(self, repeat: int) -> Path:
        """The only place where the worker of ``repeat`` may write."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="suite-", dir=os.environ.get("TMPDIR")))
        folder = self._scratch / f"repeat-{repeat}"
        folder.mkdir(exist_ok=True)
        return folder

    def evict(self) -> int | None:
        """Bytes of the dataset put out of the page cache; None where the cache is meant to be warm."""
        if self.plan.key.cache == "warm":
            return None
        return evict(self.plan.dataset_files)

    def debug_file(self, repeat: int) -> Path:
        """Where the bounded debug text of a repeat's worker goes: beside the evidence, never in it."""
        self.debug_dir.mkdir(parents=True, exist_ok=True)
        return self.debug_dir / f"worker-{repeat}.log"

    def clean(self) -> None:
        """Remove scratch; debug text stays for whoever looks for a fault, unless there is none."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        for path in self.debug_dir.glob("*.log"):
            if path.stat().st_size == 0:
                path.unlink()
        if self.debug_dir.is_dir() and not any(self.debug_dir.iterdir()):
            self.debug_dir.rmdir()
