"""The state that the repeats of one run share: prepared run, log, scratch folders, worker, progress."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.datasets.evict import evict
from suite.harness.interrupts import Interrupts
from suite.harness.log import LogWriter
from suite.harness.progress import Progress
from suite.harness.scratch import Scratch
from suite.harness.worker_process import WorkerProcess
from suite.telemetry.nvml import Devices

if TYPE_CHECKING:
    from suite.plan.plan import Plan
    from suite.plan.prepared import PreparedRun


SETUP_S, STEPS_S = 1800.0, 3600.0  # longest time without an event of a worker, in set-up and in steps


@dataclass
class Session:
    """One run in progress."""

    run: PreparedRun
    log: LogWriter
    outside: dict[str, Any]  # facts and reasons of the ``env`` event of side ``outside``
    progress: Progress
    debug_dir: Path
    devices: Devices
    interrupts: Interrupts
    repeat: int = 0
    started: bool = False  # whether the log contains the start of ``repeat``
    worker: WorkerProcess | None = None
    pid: int = 0  # of the worker, in this pid namespace

    def __post_init__(self) -> None:
        self._scratch = Scratch(self.plan.scratch_root)

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self.run.plan

    def begin(self, repeat: int) -> None:
        """Set the current repeat; its start is not in the log yet."""
        self.repeat, self.started, self.worker = repeat, False, None

    @property
    def phase(self) -> str:
        """The phase of the current repeat."""
        return self.worker.phase if self.worker else "start"

    def scratch(self, repeat: int) -> Path:
        """The only folder in which the worker of ``repeat`` may write."""
        return self._scratch.folder(f"repeat-{repeat}")

    def start_worker(self, number: int, stack: ExitStack) -> WorkerProcess:
        """Start the worker with this number; ``stack`` ends it."""
        workers = self.run.resources.workers
        command, debug_file = self.run.command(number, self.scratch(number)), self.debug_file(number)
        with self.interrupts.held():  # a signal here would leave a started worker running
            ended, remove = partial(workers.ended, number), partial(workers.remove, number)
            self.worker = stack.enter_context(WorkerProcess(command, debug_file, ended, remove))
        return self.worker

    def evict(self) -> int | None:
        """Evict the dataset from the page cache; returns the bytes, None if the cache is warm."""
        if self.plan.key.cache == "warm":
            return None
        return evict(self.run.resources.dataset.paths)

    def debug_file(self, repeat: int) -> Path:
        """The file for the bounded debug text of a worker: beside the result, never in it."""
        self.debug_dir.mkdir(parents=True, exist_ok=True)
        return self.debug_dir / f"worker-{repeat}.log"

    def clean(self) -> None:
        """Remove the scratch folder and empty debug files; other debug files stay."""
        self._scratch.remove()
        for path in self.debug_dir.glob("*.log"):
            if path.stat().st_size == 0:
                path.unlink()
        if self.debug_dir.is_dir() and not any(self.debug_dir.iterdir()):
            self.debug_dir.rmdir()
