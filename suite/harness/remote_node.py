"""Another node of the run, as node 0 sees it (:mod:`suite.harness.node` is the program on that node)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import Any

from suite.containers.engines.attestation import Attestation, EngineProblem
from suite.harness.connection import Connection, ConnectionLost
from suite.harness.process import Ended, WorkerFailure
from suite.telemetry.sampler import Sample

_ANSWER_S = 60.0  # an attestation waits 30 s for its container
_END_S = 20.0
_EVICT_S = 1800.0
_PINGS = 10
_LOST = "its connection to node 0 ended: the machine or its program `suite node` was lost"


class RemoteNode:
    """A node that has joined. It starts its part of a worker, relays its lines, and measures on its machine.

    Every request raises WorkerFailure if the connection is lost.
    """

    def __init__(self, number: int, connection: Connection, joined: Mapping[str, Any]) -> None:
        self.number = number
        self.facts: dict[str, Any] = joined["facts"]
        self.reasons: dict[str, str] = joined["reasons"]
        self._connection = connection
        self._lines: deque[bytes] = deque()
        self._exit: Ended | None = None
        self._lost = False

    @property
    def near_address(self) -> str:
        """The address of this machine that the node has connected to."""
        return self._connection.address

    # ---- the part of the worker on this node: as LocalProcess
    def fileno(self) -> int:
        """The descriptor to wait at for output."""
        return self._connection.fileno()

    def pending(self) -> bool:
        """Whether :meth:`read` has something that :meth:`fileno` does not show."""
        return bool(self._lines or self._exit or self._lost) or self._connection.pending()

    def start(self, number: int) -> str:
        """Start the worker with this number; returns the problem if that fails."""
        self._lines.clear()
        self._exit = None
        return str(self.ask("start", worker=number))

    def configure(self, job: dict[str, Any], ranks: Sequence[int]) -> None:
        """Send the job; the node fills in its paths and its address."""
        self._send({"request": "configure", "job": job, "ranks": list(ranks)})

    def write(self, message: dict[str, Any]) -> None:
        """Send one line to the worker."""
        self._send({"request": "write", "line": message})

    def read(self) -> list[bytes] | None:
        """The events that have arrived; None at the end of the output or of the connection."""
        if not (self._lines or self._exit or self._lost):
            try:
                self._take(self._connection.read())
            except ConnectionLost:
                self._lost = True
        lines = list(self._lines)
        self._lines.clear()
        return None if not lines and (self._exit or self._lost) else lines

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a process of the worker for lack of memory."""
        return bool(self.ask("out_of_memory"))

    def ended(self) -> Ended:
        """How the worker ended."""
        return self._exit or Ended(None, problem=_LOST, code="crashed")

    def end(self) -> None:
        """End the worker on the node."""
        with contextlib.suppress(WorkerFailure):
            self.ask("end", _END_S)

    # ---- measurements on this node
    def attest(self, number: int) -> Attestation:
        """The facts of the running worker; ``pid`` is None: it is a process of another machine."""
        found = self.ask("attest", worker=number)
        if "problem" in found:
            raise EngineProblem(f"node {self.number}: {found['problem']}")
        return Attestation(found["facts"], found["reasons"], None)

    def counters(self) -> tuple[int, dict[str, Any], dict[str, str]]:
        """When the counters were read (CLOCK_MONOTONIC of the node), their data and reasons."""
        when, data, reasons = self.ask("counters")
        return int(when), data, reasons

    def samples(self) -> tuple[list[Sample], str | None]:
        """The samples so far, with CLOCK_MONOTONIC of the node, and why some are missing; sampling ends."""
        found = self.ask("samples")
        return [(when, data, reasons) for when, data, reasons in found["samples"]], found["failure"]

    def clock(self) -> dict[str, Any]:
        """Three clocks of the node (:func:`suite.telemetry.clocks.clock_triple`)."""
        return dict(self.ask("clock"))

    def evict(self) -> int:
        """Evict the dataset from the node's page cache; returns the bytes."""
        return int(self.ask("evict", _EVICT_S))

    def measure_clock(self) -> tuple[int, int]:
        """What the node's CLOCK_MONOTONIC is ahead of this machine's, and the largest error, in ns.

        From the ping with the least round trip: the node read its clock within it.
        """
        best: tuple[int, int] | None = None
        for _ in range(_PINGS):
            before = monotonic_ns()
            there = int(self.ask("ping"))
            after = monotonic_ns()
            bound = (after - before + 1) // 2
            if best is None or bound < best[1]:
                best = there - (before + after) // 2, bound
        assert best is not None
        return best

    def ask(self, request: str, seconds: float = _ANSWER_S, **fields: Any) -> Any:
        """The node's answer to ``request``. Events of the worker that come before it are kept."""
        self._send({"request": request, **fields}, broken=False)
        while True:
            try:
                message = self._connection.receive(seconds)
            except ConnectionLost as error:
                self._lost = True
                raise self._failure() from error
            if "answer" in message:
                return message["answer"]
            self._take([message])

    def welcome(self, run_id: str) -> None:
        """Tell the node that all nodes agree, and the run's id."""
        self._send({"request": "welcome", "run_id": run_id}, broken=False)

    def dismiss(self, message: str = "") -> None:
        """End the node's program: in order, or with ``message`` as a refusal."""
        with contextlib.suppress(ConnectionLost):
            self._connection.send({"request": "leave", "refused": message})
        self._connection.close()

    def _take(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            if "event" in message:
                self._lines.append(str(message["event"]).encode())
            elif "exit" in message:
                self._exit = Ended(**message["exit"])

    def _send(self, message: dict[str, Any], *, broken: bool = True) -> None:
        """Send; if the node is lost, BrokenPipeError as of a pipe where ``broken``, else WorkerFailure."""
        try:
            self._connection.send(message)
        except ConnectionLost as error:
            self._lost = True
            if broken:
                raise BrokenPipeError(_LOST) from error
            raise self._failure() from error

    def _failure(self) -> WorkerFailure:
        failure = WorkerFailure("crashed", "", f"node {self.number}: {_LOST}")
        failure.node = self.number
        return failure
