"""The program of every node but node 0: it starts its part of each worker and measures on its machine.

It carries out the requests of node 0, one after the other, and relays the lines of the worker. It writes no
log. If the connection ends, it ends the worker.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict
from time import monotonic_ns
from types import FrameType
from typing import Any

from suite.containers.engines.attestation import EngineProblem
from suite.datasets.evict import evict, warm
from suite.harness.connection import Connection
from suite.harness.process import LocalProcess, WorkerFailure
from suite.harness.scratch import Scratch, clean_debug_files
from suite.plan.prepared import PreparedRun
from suite.telemetry.clocks import clock_triple
from suite.telemetry.counters import CounterReader
from suite.telemetry.nvml import Devices
from suite.telemetry.sampler import Sampler

_ORDERLY_END_S = 30  # after a signal: node 0, which has got it too, ends the run first


class Node:
    """The worker of one node, and its telemetry."""

    def __init__(self, number: int, run: PreparedRun, connection: Connection, interface: str) -> None:
        self._run = run
        self._connection = connection
        self._address = {"address": connection.address, "interface": interface}
        # Folders of nodes that share a file system are apart: locks may not hold between machines.
        self._scratch = Scratch(run.plan.scratch_root / f"node-{number}", run.plan.compiled)
        self._debug = run.plan.settings.results_dir / f"{run.plan.run_id}.debug" / f"node-{number}"
        self._devices = Devices(run.plan.device_ids)
        self._worker: LocalProcess | None = None
        self._worker_number = 0
        self._ended = False
        self._counters: CounterReader | None = None
        self._sampler: Sampler | None = None
        if run.plan.key.cache == "warm":
            warm(run.resources.dataset.paths)

    def serve(self) -> str:
        """Carry out requests until node 0 ends the run; returns its refusal, empty after an orderly end.

        Raises ConnectionLost if node 0 is lost, and Terminated 30 s after a signal.
        """
        try:
            while True:
                ready = self._wait()
                if self._worker is not None and self._worker in ready:
                    self._relay(self._worker)
                for message in self._connection.read() if self._connection in ready else ():
                    if message["request"] == "leave":
                        return str(message["refused"])
                    self._carry_out(message)
        finally:
            self._end()
            with contextlib.suppress(OSError):  # the run does not need it
                self._scratch.keep_compiled()
            self._scratch.remove()
            clean_debug_files(self._debug)
            clean_debug_files(self._debug.parent)

    def _wait(self) -> list[Any]:
        """Those of connection and worker that have something to read."""
        if self._connection.pending():
            return [self._connection]
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            if self._worker is not None and not self._ended:
                selector.register(self._worker, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select()]

    def _relay(self, worker: LocalProcess) -> None:
        lines = worker.read()
        for line in lines or ():
            self._connection.send({"event": line.decode(errors="replace")})
        if lines is None:
            self._ended = True
            self._connection.send({"exit": asdict(worker.ended())})

    def _carry_out(self, message: Mapping[str, Any]) -> None:
        name = message["request"]
        if name == "configure":
            self._configure(message["job"], message["ranks"])
        elif name == "write":
            self._write_to_worker(lambda worker: worker.write(message["line"]))
        else:
            requests: dict[str, Callable[[], Any]] = {
                "ping": monotonic_ns,
                "clock": clock_triple,
                "evict": lambda: evict(self._run.resources.dataset.paths),
                "start": lambda: self._start(message["worker"]),
                "attest": lambda: self._attest(message["worker"]),
                "counters": self._read_counters,
                "samples": self._take_samples,
                "out_of_memory": lambda: self._worker is not None and self._worker.out_of_memory(),
                "end": self._end,
            }
            self._connection.send({"answer": requests[name]()})

    def _start(self, number: int) -> str:
        """Start the worker; returns the problem if that fails."""
        workers = self._run.resources.workers
        self._debug.mkdir(parents=True, exist_ok=True)
        command = self._run.command(number, self._scratch.folder(f"repeat-{number}"))
        try:
            self._worker = LocalProcess(
                command,
                self._debug / f"worker-{number}.log",
                lambda: workers.ended(number),
                lambda: workers.remove(number),
            )
        except WorkerFailure as failure:
            return failure.message
        self._worker_number, self._ended = number, False
        return ""

    def _configure(self, job: dict[str, Any], ranks: list[int]) -> None:
        paths = self._run.resources.workers.paths(
            self._scratch.folder(f"repeat-{self._worker_number}"), self._run.resources.dataset.path
        )
        job |= {"data_dir": paths.data, "scratch_dir": paths.scratch, "pair_file": paths.pair}
        job["network"] |= self._address
        self._write_to_worker(lambda worker: worker.configure(job, ranks))

    def _write_to_worker(self, write: Callable[[LocalProcess], None]) -> None:
        if self._worker is not None:
            # The end of its output, which is relayed, states how it ended.
            with contextlib.suppress(BrokenPipeError):
                write(self._worker)

    def _attest(self, number: int) -> dict[str, Any]:
        """The facts of the running worker; telemetry starts."""
        if self._worker is None:
            return {"problem": "no worker was started"}
        try:
            found = self._run.resources.workers.attest(number, self._worker.process.pid)
        except EngineProblem as problem:
            return {"problem": str(problem)}
        pid = self._worker.process.pid if found.pid is None else found.pid
        plan = self._run.plan
        self._sampler = Sampler(pid, plan.device_ids, plan.telemetry).__enter__()
        self._counters = CounterReader(pid, self._devices)
        return {"facts": found.facts, "reasons": found.reasons}

    def _read_counters(self) -> tuple[int, dict[str, Any], dict[str, str]]:
        assert self._counters is not None
        data, reasons = self._counters.read()
        return monotonic_ns(), data, reasons

    def _take_samples(self) -> dict[str, Any]:
        assert self._sampler is not None
        return {"samples": self._sampler.stop(), "failure": self._sampler.failure}

    def _end(self) -> None:
        """End the worker and its telemetry."""
        if self._sampler is not None:
            self._sampler.stop()
        if self._worker is not None:
            self._worker.end()
        self._worker, self._sampler, self._counters = None, None, None


class Terminated(BaseException):
    """A signal was received, and node 0 has not ended the run since."""


def end_soon_after_a_signal() -> None:
    """Let node 0 end the run in order after SIGINT, SIGTERM or SIGHUP; Terminated if it does not in 30 s."""

    def terminate(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise Terminated

    def wait(number: int, frame: FrameType | None) -> None:
        del number, frame
        signal.alarm(_ORDERLY_END_S)

    signal.signal(signal.SIGALRM, terminate)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, wait)
