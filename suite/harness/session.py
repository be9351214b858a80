"""What the repeats of one run share: the prepared run, log, scratch folders, limits, progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.datasets.evict import evict
from suite.harness.interrupts import Interrupts
from suite.harness.log import LogWriter
from suite.harness.progress import Progress
from suite.harness.scratch import Scratch
from suite.telemetry.nvml import Devices

if TYPE_CHECKING:
    from suite.harness.worker_process import WorkerProcess
    from suite.plan.plan import Plan
    from suite.plan.prepared import PreparedRun


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a worker may stay silent, in seconds."""

    setup_s: float = 1800.0
    steps_s: float = 3600.0


@dataclass
class Session:
    """One run in progress."""

    run: PreparedRun
    log: LogWriter
    outside: dict[str, Any]  # facts and reasons of the outside ``env`` event
    progress: Progress
    debug_dir: Path
    devices: Devices
    interrupts: Interrupts
    limits: Timeouts = field(default_factory=Timeouts)
    repeat: int = 0
    started: bool = False  # whether the start of ``repeat`` is in the log
    worker: WorkerProcess | None = None
    pid: int = 0  # the worker's own process, as seen from here

    def __post_init__(self) -> None:
        self._scratch = Scratch(self.plan.scratch_root)

    @property
    def plan(self) -> Plan:
        """What was decided of the run."""
        return self.run.plan

    def begin(self, repeat: int) -> None:
        """From here on, what fails has failed in ``repeat``, before its start is in the log."""
        self.repeat, self.started, self.worker = repeat, False, None

    @property
    def phase(self) -> str:
        """The phase that the repeat has reached."""
        return self.worker.phase if self.worker else "start"

    def scratch(self, repeat: int) -> Path:
        """The only folder where the worker of ``repeat`` may write."""
        return self._scratch.folder(f"repeat-{repeat}")

    def evict(self) -> int | None:
        """Bytes of the dataset put out of the page cache; None where the cache is meant to be warm."""
        if self.plan.key.cache == "warm":
            return None
        return evict(self.run.resources.dataset.paths)

    def debug_file(self, repeat: int) -> Path:
        """Where the bounded debug text of a repeat's worker goes: beside the evidence, never in it."""
        self.debug_dir.mkdir(parents=True, exist_ok=True)
        return self.debug_dir / f"worker-{repeat}.log"

    def clean(self) -> None:
        """Remove scratch; debug text stays for whoever looks for a fault, unless there is none."""
        self._scratch.remove()
        for path in self.debug_dir.glob("*.log"):
            if path.stat().st_size == 0:
                path.unlink()
        if self.debug_dir.is_dir() and not any(self.debug_dir.iterdir()):
            self.debug_dir.rmdir()
