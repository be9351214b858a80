"""The state that the repeats of one run share: prepared run, log, scratch folders, worker, progress."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.containers.engines.attestation import Attestation, EngineProblem
from suite.contract import WARMUP_STEPS
from suite.contract.network import Network, unused_ports
from suite.datasets.evict import evict
from suite.harness.connection import interface_of
from suite.harness.interrupts import Interrupts
from suite.harness.log import LogWriter
from suite.harness.progress import Progress
from suite.harness.remote_node import RemoteNode
from suite.harness.scratch import Scratch, clean_debug_files
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.telemetry.nvml import Devices

if TYPE_CHECKING:
    from suite.plan.plan import Plan
    from suite.plan.prepared import PreparedRun


# Longest time without an event of a worker: in set-up, in a hundred steps, and in an epoch.
SETUP_S, STEPS_S, EPOCH_S = 1800.0, 3600.0, 86_400.0
EARLY_S = 120.0  # longest time that a window waits until the next worker has imported its framework


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
    others: Sequence[RemoteNode] = ()  # the nodes of the run but this one, node 0
    repeat: int = 0
    started: bool = False  # whether the log contains the start of ``repeat``
    worker: WorkerProcess | None = None
    pid: int = 0  # of the worker, in this pid namespace
    starts_early: bool = False  # whether workers may be started beside the set-up of others

    def __post_init__(self) -> None:
        self._early: dict[int, WorkerProcess] = {}  # workers that were started early, by their numbers
        self._scratch = Scratch(self.plan.scratch_root, self.plan.compiled)

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

    def _show_phase(self, phase: str) -> None:
        warmup = self.run.units(self.repeat)[:WARMUP_STEPS] if phase == "window" else ()
        self.progress.phase(self.repeat, phase, sum(warmup))

    def scratch(self, repeat: int) -> Path:
        """The only folder in which the worker of ``repeat`` may write."""
        return self._scratch.folder(f"repeat-{repeat}")

    def start_worker(self, number: int, stack: ExitStack, others: Sequence[RemoteNode] = ()) -> WorkerProcess:
        """Start the worker with this number, also on the nodes ``others``; ``stack`` ends it.

        One that was started early is taken; like any other it begins when it is configured.
        """
        self.await_early()
        with self.interrupts.held():  # a signal here would leave a started worker running
            worker = self._early.pop(number, None) or self._new_worker(number, others=others)
            self.worker = stack.enter_context(worker)
        self.worker.on_phase = self._show_phase
        for node in others:
            if problem := node.start(number):
                failure = WorkerFailure("environment", "start", f"node {node.number}: {problem}")
                failure.node = node.number
                raise failure
        return self.worker

    def attest(
        self, number: int, worker: WorkerProcess, others: Sequence[RemoteNode] = ()
    ) -> list[Attestation]:
        """The attestation of the worker with this number, on this node and on ``others``."""
        try:
            here = self.run.resources.workers.attest(number, worker.pid)
            return [here, *(node.attest(number) for node in others)]
        except EngineProblem as problem:
            try:
                worker.receive(1.0)  # if the worker has just ended, that is the failure to report
            except WorkerFailure as failure:
                if failure.code != "timed_out":
                    raise
            message = f"the engine cannot attest the container: {problem}"
            raise WorkerFailure("environment", worker.phase, message) from problem

    def _new_worker(
        self, number: int, *, others: Sequence[RemoteNode] = (), early: bool = False
    ) -> WorkerProcess:
        workers = self.run.resources.workers
        command, debug_file = self.run.command(number, self.scratch(number)), self.debug_file(number)
        ended, remove = partial(workers.ended, number), partial(workers.remove, number)
        return WorkerProcess(command, debug_file, ended, remove, others, early=early)

    def start_early(self, number: int, job: dict[str, Any]) -> None:
        """Start the worker with this number beside the set-up of the current one.

        It imports its framework, does not touch the device, and waits for its turn.
        """
        try:
            with self.interrupts.held():
                self._early[number] = self._new_worker(number, early=True)
            self._early[number].configure(job)
        except WorkerFailure:
            self._end_early(number)

    def await_early(self) -> None:
        """Wait until early workers are idle, so that they take no processor time from a window.

        One that failed is ended: its repeat starts another one, whose failure is reported there.
        """
        for number, worker in list(self._early.items()):
            try:
                worker.await_imported(EARLY_S)
            except WorkerFailure:
                self._end_early(number)

    def _end_early(self, number: int) -> None:
        if worker := self._early.pop(number, None):
            worker.end()

    def job(self, repeat: int) -> dict[str, Any]:
        """The configuration of the worker of ``repeat``; over several nodes, with the way to reach node 0."""
        job = self.run.job(repeat, self.scratch(repeat))
        if self.others:
            address = self.others[0].near_address
            barrier, exchange = unused_ports(address, 2)
            secret = secrets.token_hex(16)
            network = Network(address, address, interface_of(address), barrier, exchange, secret)
            job["network"] = asdict(network)
        return job

    def evict(self) -> int | None:
        """Evict the dataset from the page cache of all nodes; returns the bytes, None if it is warm."""
        if self.plan.key.cache == "warm":
            return None
        return evict(self.run.resources.dataset.paths) + sum(node.evict() for node in self.others)

    def debug_file(self, repeat: int) -> Path:
        """The file for the bounded debug text of a worker: beside the result, never in it."""
        self.debug_dir.mkdir(parents=True, exist_ok=True)
        return self.debug_dir / f"worker-{repeat}.log"

    def keep_compiled(self) -> None:
        """Keep what the workers compiled for later runs, if they are to reuse it; a failure is a warning."""
        try:
            self._scratch.keep_compiled()
        except OSError as error:
            self.progress.write(
                "warning: later runs compile again: expected to copy what was compiled to "
                f"{self.plan.compiled}, found {error.strerror or error}; make room or give write access"
            )

    def clean(self) -> None:
        """Remove the scratch folder and empty debug files; other debug files stay. Ends early workers."""
        for number in list(self._early):
            self._end_early(number)
        self._scratch.remove()
        clean_debug_files(self.debug_dir)
