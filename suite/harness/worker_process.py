"""A worker: the harness starts it, exchanges events with its ranks on all nodes, and always ends it."""

from __future__ import annotations

import contextlib
import json
import re
import selectors
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any

from suite.containers.engines.attestation import ContainerExit
from suite.containers.engines.native import WorkerCommand
from suite.contract import node_of_rank
from suite.harness.process import Ended, LocalProcess, WorkerFailure
from suite.harness.remote_node import RemoteNode
from suite.worker.group import STRANDED

__all__ = ["WorkerFailure", "WorkerProcess"]
_EXIT_EVENT_S = 10.0
_GRACE_S = 5.0  # to find the node that failed after a rank of another node ended because it lost a rank
_CLIENT_FAILED = (125, 126, 127)  # exit codes of an engine's client if the container does not start
_PHASE = re.compile("[a-z_]{1,32}")
_FIELDS = {  # required fields of events; other fields are checked where they are used
    "phase": ("name",),
    "hello": ("facts",),
    "fault": ("code", "phase", "message"),
    "window_close": ("open_ns", "close_ns"),
    "steps": ("timestamps", "dispatched", "arrivals", "losses", "gradient_norms", "outputs", "batches"),
    "repeat_end": ("window", "initial", "final"),
    "exchange_sweep": ("operation", "sizes", "ended"),
    "probed": ("peak_rss_bytes", "imported_bytes"),
    "ended": ("status",),
}
_FAULTS = ("crashed", "out_of_memory", "protocol", "non_finite_loss", "io", "dataset", "environment")


class WorkerProcess:
    """A started worker. Use it as a context manager: on exit it ends the process group.

    ``ended`` returns how the worker's container ended (None: native); ``remove`` removes the container.
    ``others`` are the nodes beside this one, which have started their part of the worker. A worker that is
    started ``early``, on this node alone, imports its framework and waits until it is configured again.
    """

    def __init__(
        self,
        command: WorkerCommand,
        debug_file: Path,
        ended: Callable[[], ContainerExit | None] = lambda: None,
        remove: Callable[[], None] = lambda: None,
        others: Sequence[RemoteNode] = (),
        *,
        early: bool = False,
    ) -> None:
        self.phase = "start"  # the last phase that a rank entered
        self.on_phase: Callable[[str], None] = lambda _: None  # called with each phase that rank 0 enters
        self._imported = False
        self._ranks: tuple[int, ...] = (0,)
        self._phases: dict[int, str] = {}
        self._waiting: dict[int, deque[dict[str, Any]]] = {}
        self._local = LocalProcess(command, debug_file, ended, remove, early=early)
        self._processes: tuple[LocalProcess | RemoteNode, ...] = (self._local, *others)
        self._lines: deque[tuple[int, bytes, int]] = deque()  # node, text, receipt
        self._unread: set[int] = set()  # nodes from which nothing more is read
        self._done: set[int] = set()  # ranks that have sent their last event
        self._selector = selectors.DefaultSelector()
        for node, process in enumerate(self._processes):
            self._selector.register(process, selectors.EVENT_READ, node)

    @property
    def pid(self) -> int:
        """Process id of the worker on this node."""
        return self._local.process.pid

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def await_imported(self, timeout_s: float) -> None:
        """Wait until every rank of a worker that was started early is idle. Raises WorkerFailure."""
        if not self._imported:
            self.expect_all("imported", timeout_s)
            self._imported = True

    def configure(self, job: dict[str, Any]) -> None:
        """Send the configuration of the job and its ranks to every node; the second time, let it begin."""
        if self._waiting:  # it has its configuration since it was started early
            self.command("begin")
            return
        self._ranks = tuple(range(job.get("world_size", 1)))
        self._waiting = {rank: deque() for rank in self._ranks}
        for node, process in enumerate(self._processes):
            ranks = self._ranks_of(node)
            several = {"node": node} if len(self._ranks) > 1 else {}  # a conversion's job has no node
            with self._reporting_end():
                process.configure({**job, **several}, ranks if several else ())

    def command(self, name: str, **fields: Any) -> None:
        """Send one command to every node."""
        for process in self._processes:
            with self._reporting_end():
                process.write({"command": name, **fields})

    def receive(self, timeout_s: float) -> tuple[dict[str, Any], int]:
        """The next event and the CLOCK_MONOTONIC time of its receipt in ns; WorkerFailure without one."""
        _, event, received = self._receive(timeout_s)
        return event, received

    def _receive(self, timeout_s: float) -> tuple[int, dict[str, Any], int]:
        """The rank that sent the event, and the result of :meth:`receive`."""
        node, line, received = self._read_line(monotonic() + timeout_s, timeout_s)
        rank, text = self._rank_of(node, line)
        try:
            return rank, self._checked_event(rank, text), received
        except WorkerFailure as failure:
            raise self._with_rank(rank, failure) from failure.__cause__

    def _checked_event(self, rank: int, text: bytes) -> dict[str, Any]:
        """The event of ``rank`` in ``text``; WorkerFailure if it reports a failure."""
        event = self._parse(text)
        if event["event"] == "phase":
            self._enter(rank, event["name"])
        elif event["event"] == "fault":
            self._enter(rank, event["phase"])
            code = event["code"] if event["code"] in _FAULTS else "crashed"
            failure = WorkerFailure(code, self.phase, str(event["message"]))
            raise self._ended(self._node_of(rank), failure)
        elif event["event"] == "done":
            self._done.add(rank)
        elif event["event"] == "ended" and len(self._ranks) > 1:
            if event["status"] == STRANDED and len(self._processes) > 1:
                self._find_lost_node(self._node_of(rank))
            raise self._rank_ended(rank, event["status"])
        return event

    def expect_all(self, name: str, timeout_s: float) -> tuple[list[dict[str, Any]], int]:
        """The next event of every rank, all of kind ``name``, in rank order, and when the last one came.

        Further events of a rank that is ahead of another one are queued.
        """
        received = 0
        while not all(self._waiting.values()):
            rank, event, received = self._receive(timeout_s)
            if event["event"] != "phase":
                self._waiting[rank].append(event)
        found = [self._waiting[rank].popleft() for rank in self._ranks]
        for rank, event in enumerate(found):
            if event["event"] != name:
                failure = WorkerFailure("protocol", self.phase, f"expected {name}, found {event['event']}")
                raise self._with_rank(rank, failure)
        return found, received

    def expect(self, name: str, timeout_s: float) -> tuple[dict[str, Any], int]:
        """The next event of kind ``name``; events ``phase`` are skipped, any other is a protocol failure."""
        while True:
            event, received = self.receive(timeout_s)
            if event["event"] == name:
                return event, received
            if event["event"] != "phase":
                raise WorkerFailure("protocol", self.phase, f"expected {name}, found {event['event']}")

    def end(self) -> None:
        """End the worker on every node, also if that fails on one."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._selector.close)
            for process in self._processes:
                stack.callback(process.end)

    def _node_of(self, rank: int) -> int:
        """The node of ``rank``: every node has the same number of ranks, in their order."""
        return node_of_rank(rank, len(self._processes), len(self._ranks))

    def _ranks_of(self, node: int) -> list[int]:
        return [rank for rank in self._ranks if self._node_of(rank) == node]

    def _read_line(self, until: float, timeout_s: float) -> tuple[int, bytes, int]:
        """The node that sent the next line, the line without the token, and when it was received."""
        while not self._lines:
            ready = [
                node
                for node, process in enumerate(self._processes)
                if process.pending() and node not in self._unread
            ]
            if not ready:
                found = self._selector.select(timeout=max(0.0, until - monotonic()))
                ready = [key.data for key, _ in found]
            if not ready:
                message = f"no event in the phase {self.phase} for {timeout_s:.0f} s"
                raise WorkerFailure("timed_out", self.phase, message)
            for node in ready:
                lines = self._processes[node].read()
                if lines is None and len(self._processes) > 1 and self._done.issuperset(self._ranks_of(node)):
                    self._stop_reading(node)  # other nodes may need longer
                    continue
                if lines is None:
                    raise self._of_node(node, self._ended(node, None))
                received = monotonic_ns()
                self._lines.extend((node, line, received) for line in lines)
        return self._lines.popleft()

    def _parse(self, text: bytes) -> dict[str, Any]:
        """The event in ``text``, with its required fields."""
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise WorkerFailure("protocol", self.phase, "expected an event, found another line")
        if missing := [name for name in _FIELDS.get(event["event"], ()) if name not in event]:
            raise WorkerFailure(
                "protocol", self.phase, f"the event {event['event']} has no field {missing[0]}"
            )
        return event

    def _rank_of(self, node: int, text: bytes) -> tuple[int, bytes]:
        """The rank that sent ``text``, and the event: with several ranks the line begins with the rank."""
        if len(self._ranks) == 1:
            return 0, text
        number, _, rest = text.partition(b" ")
        if not number.isdigit() or int(number) not in self._waiting or self._node_of(int(number)) != node:
            raise WorkerFailure("protocol", self.phase, "expected a rank, found something else")
        return int(number), rest

    def _with_rank(self, rank: int, failure: WorkerFailure) -> WorkerFailure:
        """``failure`` with its rank, if the worker has several."""
        if len(self._ranks) > 1 and failure.node is None:
            failure.rank, failure.node = rank, self._node_of(rank)
            failure.message = f"rank {rank} (node {failure.node}): {failure.message}"
            failure.phase = self._phases.get(rank, "start")
        return failure

    def _of_node(self, node: int, failure: WorkerFailure) -> WorkerFailure:
        """``failure`` with its node and, if it has only one, its rank, if the worker has several nodes."""
        if len(self._processes) > 1 and failure.node is None:
            ranks = self._ranks_of(node)
            if len(ranks) == 1:
                return self._with_rank(ranks[0], failure)
            failure.node = node
            failure.message = f"node {node}: {failure.message}"
        return failure

    def _find_lost_node(self, stranded: int) -> None:
        """Raise the failure of the node that made a rank of node ``stranded`` end; return if none is found.

        It reports its failure, or does not answer while all others have lost a rank.
        """
        self._stop_reading(stranded)
        until = monotonic() + _GRACE_S
        waiting = set(range(len(self._processes))) - self._unread
        while waiting:
            try:
                node, line, _ = self._read_line(until, _GRACE_S)
            except WorkerFailure as failure:
                if failure.code != "timed_out":
                    raise
                break
            rank, text = self._rank_of(node, line)
            event = self._parse(text)
            failed = event["event"] == "ended" and event["status"] != STRANDED
            if failed or event["event"] in ("fault", "phase"):
                try:
                    self._checked_event(rank, text)
                except WorkerFailure as failure:
                    raise self._with_rank(rank, failure) from failure.__cause__
            if event["event"] == "ended":
                self._stop_reading(node)
            waiting -= self._unread
        if len(waiting) == 1:
            message = "expected a rank that answers; the other nodes waited for it in vain"
            raise self._of_node(min(waiting), WorkerFailure("crashed", self.phase, message))

    def _stop_reading(self, node: int) -> None:
        """Read no more from ``node``: the end of its output is expected."""
        if node not in self._unread:
            self._selector.unregister(self._processes[node])
            self._unread.add(node)

    def _enter(self, rank: int, phase: object) -> None:
        if not isinstance(phase, str) or not _PHASE.fullmatch(phase):
            raise WorkerFailure("protocol", self.phase, "expected the name of a phase, found something else")
        self.phase = self._phases[rank] = phase
        if rank == 0:
            self.on_phase(phase)

    def _rank_ended(self, rank: int, status: object) -> WorkerFailure:
        """The failure of a rank that ended without an event; ``status`` as in subprocess."""
        if type(status) is not int or not -64 <= status <= 255:
            return WorkerFailure(
                "protocol", self.phase, "expected the status of an ended rank, found something else"
            )
        self.phase = self._phases.get(rank, "start")
        out_of_memory = self._processes[self._node_of(rank)].out_of_memory()
        failure = self._failure(Ended(status, out_of_memory))
        failure.exit_code, failure.signal = (status, None) if status >= 0 else (None, -status)
        return failure

    def _ended(self, node: int, fault: WorkerFailure | None) -> WorkerFailure:
        """The failure of the ended process of ``node``; a reported ``fault`` keeps its message."""
        ended = self._processes[node].ended()
        if ended.status is None:
            return fault or WorkerFailure(ended.code, self.phase, ended.problem)
        if fault is None or (ended.out_of_memory and fault.code == "crashed"):
            fault = self._failure(ended)
        killed = ended.status < 0
        fault.exit_code = None if killed else ended.status
        fault.signal = -ended.status if killed else None
        return fault

    def _failure(self, ended: Ended) -> WorkerFailure:
        """The failure of a worker that reported none."""
        status = ended.status or 0
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        if ended.out_of_memory:
            message = f"the kernel ended the worker in the phase {self.phase}: memory limit reached ({how})"
            return WorkerFailure("out_of_memory", self.phase, message)
        lines = list(ended.lines)
        if self.phase == "start" and status in _CLIENT_FAILED:
            first = lines[0] if lines else "no message"
            return WorkerFailure("environment", self.phase, f"the engine did not start the worker: {first}")
        if self.phase == "start" and lines and lines[-1].startswith(("ModuleNotFoundError", "ImportError")):
            return WorkerFailure("environment", self.phase, f"the interpreter lacks a module: {lines[-1]}")
        code = "killed" if status < 0 else "crashed"
        return WorkerFailure(code, self.phase, f"the worker ended in the phase {self.phase} with {how}")

    @contextlib.contextmanager
    def _reporting_end(self) -> Any:
        """Instead of a BrokenPipeError the failure that the worker reported before, or its end."""
        try:
            yield
        except BrokenPipeError:
            while True:
                self.receive(_EXIT_EVENT_S)
