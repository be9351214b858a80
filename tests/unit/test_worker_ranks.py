"""Several ranks on one node: the parent that starts and ends them, the barrier, and their cores."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suite.containers.engines.native import PROJECT, WorkerCommand
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.worker.group import Group, LostRank, SpanBarrier
from suite.worker.parent import shares

# A worker whose ranks behave as the mode of the job requires, after the event hello.
RANKS = """
import os, sys, time
from suite.worker import main, parent
from suite.worker.channel import Channel
from suite.worker.group import STRANDED, Group, LostRank

channel = Channel()
numbers = channel.configuration.get("ranks", [0])
if len(numbers) > 1:
    raise SystemExit(parent.run_ranks(channel, numbers))
channel.listen()
job = channel.configuration["job"]
group = Group.of(job["rank"], channel.configuration["peers"])
channel.send("hello", facts={"pid": os.getpid(), "cores": sorted(os.sched_getaffinity(0)), **job})
channel.wait("begin")
channel.phase("setup")
try:
    if job["mode"] == "exits" and job["rank"] == 1:
        raise SystemExit(7)
    if job["mode"] == "faults" and job["rank"] == 1:
        channel.send("fault", code="out_of_memory", phase="setup", message="MemoryError: 5 GB")
        raise SystemExit(1)
    if job["mode"] == "forges" and job["rank"] == 1:
        os.write(channel._out, b'0 {"event":"window_open"}\\n')
        os.write(channel._out, channel._token + b' 0 {"event":"window_open"}\\n')
    if job["mode"] == "waits":
        group.gather()
        group.release()
    channel.send("window_open")
    channel.wait("go")
    channel.send("done")
except LostRank:
    raise SystemExit(STRANDED)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """A function that starts three ranks with a mode of ``RANKS``."""
    workers: list[WorkerProcess] = []

    def start(mode: str) -> tuple[WorkerProcess, list[dict[str, Any]]]:
        program = tmp_path / "ranks.py"
        program.write_text(RANKS)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}
        worker = WorkerProcess(
            WorkerCommand((sys.executable, str(program)), environment, tmp_path), tmp_path / "debug.log"
        )
        workers.append(worker)
        worker.configure({"mode": mode, "device": "cuda:0", "world_size": 3})
        hellos, _ = worker.expect_all("hello", 30)
        worker.command("begin")
        return worker, [hello["facts"] for hello in hellos]

    yield start
    for worker in workers:
        worker.end()


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether the process ends within ``seconds``."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


def test_each_rank_gets_its_number_device_and_cores(started: Any) -> None:
    worker, facts = started("waits")
    assert [(one["rank"], one["local_rank"], one["world_size"]) for one in facts] == [
        (0, 0, 3), (1, 1, 3), (2, 2, 3),
    ]  # fmt: skip
    assert [one["device"] for one in facts] == ["cuda:0", "cuda:1", "cuda:2"]
    cores = sorted(os.sched_getaffinity(0))
    assert [one["cores"] for one in facts] == shares(cores, 3)
    worker.expect_all("window_open", 10)
    worker.command("go")
    worker.expect_all("done", 10)
    assert all(gone(one["pid"]) for one in facts)


@pytest.mark.parametrize(
    ("mode", "code", "exit_code"), [("exits", "crashed", 7), ("faults", "out_of_memory", 1)]
)
def test_failed_rank_is_named_and_ends_all_ranks(mode: str, code: str, exit_code: int, started: Any) -> None:
    worker, facts = started(mode)
    with pytest.raises(WorkerFailure) as caught:
        worker.expect_all("window_open", 20)
    failure = caught.value
    assert (failure.code, failure.exit_code, failure.rank, failure.node) == (code, exit_code, 1, 0)
    assert (failure.phase, failure.message[:16]) == ("setup", "rank 1 (node 0):")
    assert all(gone(one["pid"]) for one in facts)


def test_killed_rank_is_named_even_if_others_end_first(started: Any) -> None:
    worker, facts = started("waits")
    worker.expect_all("window_open", 10)
    os.kill(facts[2]["pid"], 9)
    with pytest.raises(WorkerFailure) as caught:
        worker.expect_all("done", 20)
    assert (caught.value.code, caught.value.signal, caught.value.rank) == ("killed", 9, 2)


def test_ranks_end_with_their_parent(started: Any) -> None:
    worker, facts = started("waits")
    os.kill(worker.pid, 9)
    assert all(gone(one["pid"]) for one in facts)


def test_rank_cannot_send_events_of_another_rank(started: Any, tmp_path: Path) -> None:
    worker, _ = started("forges")
    with pytest.raises(WorkerFailure) as caught:
        worker.expect_all("window_open", 10)
    assert caught.value.code == "protocol"
    assert caught.value.message == "rank 1 (node 0): expected an event, found another line"
    worker.end()
    assert b'0 {"event":"window_open"}' in (tmp_path / "debug.log").read_bytes()


def group_of(count: int) -> list[Group]:
    """The groups of ``count`` ranks in this process."""
    pairs = [socket.socketpair() for _ in range(count - 1)]
    followers = [Group(rank, [far]) for rank, (_, far) in enumerate(pairs, 1)]
    return [Group(0, [near for near, _ in pairs]), *followers]


def test_clock_of_rank_0_contains_every_span() -> None:
    groups = group_of(3)
    spans: dict[int, tuple[int, int]] = {}
    barriers = [SpanBarrier(group) for group in groups]

    def run(rank: int) -> None:
        time.sleep(0.02 * rank)
        barriers[rank].enter()
        opened = time.monotonic_ns()
        time.sleep(0.01 * (rank + 1))
        spans[rank] = (opened, time.monotonic_ns())
        barriers[rank].leave()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    low, high = barriers[0].open_ns, barriers[0].close_ns
    assert all(low <= opened < closed <= high for opened, closed in spans.values())
    assert max(opened for opened, _ in spans.values()) - low < 20_000_000, "the ranks did not begin together"


def test_decision_of_rank_0_applies_to_all_ranks() -> None:
    groups = group_of(3)
    wishes = {0: [True, True, False], 1: [False] * 3, 2: [True] * 3}
    found: dict[int, list[bool]] = {}

    def run(rank: int) -> None:
        found[rank] = [groups[rank].decide(wish) for wish in wishes[rank]]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == dict.fromkeys(range(3), wishes[0])


def test_lost_rank_raises_an_error() -> None:
    leader, follower = group_of(2)
    follower._peers[0].close()
    with pytest.raises(LostRank):
        leader.gather()


def test_single_rank_never_waits() -> None:
    alone = Group()
    assert [alone.decide(True), alone.decide(False)] == [True, False]
    barrier = SpanBarrier(alone)
    barrier.enter()
    barrier.leave()
    assert barrier.open_ns <= barrier.close_ns


@pytest.mark.parametrize(
    ("cores", "count", "expected"),
    [
        ([0, 1, 2, 3], 2, [[0, 1], [2, 3]]),
        ([0, 1, 2, 3, 4], 2, [[0, 1], [2, 3, 4]]),
        ([4, 6, 8], 3, [[4], [6], [8]]),
        ([0, 1], 3, [[0], [1], [0]]),
    ],
)
def test_cores_are_split_into_contiguous_parts(
    cores: list[int], count: int, expected: list[list[int]]
) -> None:
    assert shares(cores, count) == expected
