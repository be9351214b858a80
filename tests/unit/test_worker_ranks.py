"""Several ranks on one node: the parent that starts and ends them, the barrier, and their cores."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from suite.containers.engines.native import PROJECT, WorkerCommand
from suite.contract import BENCHMARK, Job, LostRank
from suite.harness.process import LocalProcess
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.worker import loop
from suite.worker import main as worker_main
from suite.worker.group import STRANDED, Group, SpanBarrier
from suite.worker.parent import RunningHelpers, by_core, shares
from tests.fixtures.forged_ranks import TWO, TWO_GPUS

KEY = asdict(TWO.key)

# A worker whose ranks behave as the mode of the job requires, after the event hello.
RANKS = """
import os, sys, time
from suite.worker import main, parent
from suite.worker.channel import Channel
from suite.contract import BENCHMARK, Job, LostRank
from suite.worker.group import STRANDED, Group

channel = Channel()
if numbers := channel.configuration.get("ranks"):
    raise SystemExit(parent.run_ranks(channel, numbers))
channel.listen()
job = channel.configuration["job"]
group = Group.of(job["rank"], channel.configuration["peers"])
channel.send("hello", facts={"pid": os.getpid(), "cores": sorted(os.sched_getaffinity(0)), **job})
channel.wait("begin")
if job["mode"] == "strands" and job["rank"] == 1:
    time.sleep(0.3)  # its phase comes after rank 0 has ended
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
    if job["mode"] == "strands" and job["rank"] == 0:
        raise LostRank
    if job["mode"] == "strands":
        time.sleep(0.2)
        raise SystemExit(7)
    if job["mode"] == "hangs":
        if job["rank"] == 1:
            time.sleep(60)
        raise LostRank
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
        worker.configure({"mode": mode, "device": "cuda:0", "world_size": 3, "key": KEY})
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


def test_rank_that_the_others_wait_for_in_vain_is_named(started: Any) -> None:
    worker, facts = started("hangs")
    with pytest.raises(WorkerFailure) as caught:
        worker.expect_all("window_open", 20)
    failure = caught.value
    assert (failure.code, failure.phase, failure.rank) == ("crashed", "setup", 1)
    assert "waited for it in vain" in failure.message
    assert all(gone(one["pid"]) for one in facts)


@pytest.mark.parametrize(
    ("mode", "code", "exit_code", "message"),
    [
        ("hangs", "crashed", None, "waited for it in vain"),
        ("strands", "crashed", 7, "ended in the phase setup with exit code 7"),
    ],
)
def test_rank_of_another_node_that_made_rank_0_end_is_named(
    mode: str, code: str, exit_code: int | None, message: str, tmp_path: Path
) -> None:
    """Node 1 is another process of this machine: it has the same methods."""
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}
    start = WorkerCommand((sys.executable, str(program)), environment, tmp_path)
    other: Any = LocalProcess(start, tmp_path / "node-1.log", lambda: None, lambda: None)
    with WorkerProcess(start, tmp_path / "debug.log", others=[other]) as worker:
        worker.configure({"mode": mode, "device": "cpu", "world_size": 2, "key": KEY})
        hellos, _ = worker.expect_all("hello", 30)
        assert [(one["facts"]["rank"], one["facts"]["node"]) for one in hellos] == [(0, 0), (1, 1)]
        worker.command("begin")
        with pytest.raises(WorkerFailure) as caught:
            worker.expect_all("window_open", 20)
    failure = caught.value
    assert (failure.code, failure.exit_code) == (code, exit_code)
    assert (failure.rank, failure.node) == (1, 1)
    assert message in failure.message
    assert all(gone(one["facts"]["pid"]) for one in hellos)


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
    entered: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    barriers = [SpanBarrier(group) for group in groups]

    def run(rank: int) -> None:
        time.sleep(0.02 * rank)
        entered[rank] = time.monotonic_ns()
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
    assert max(entered.values()) <= min(opened for opened, _ in spans.values()), (
        "a rank began without another"
    )


def test_all_ranks_proceed_if_one_wishes_to() -> None:
    groups = group_of(3)
    wishes = {0: [True, False, False, False], 1: [False, False, True, False], 2: [True, True, False, False]}
    found: dict[int, list[bool]] = {}

    def run(rank: int) -> None:
        found[rank] = [groups[rank].decide(wish) for wish in wishes[rank]]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == {rank: [True, True, True, False] for rank in range(3)}


def test_soak_of_each_rank_is_long_enough_however_late_it_begins() -> None:
    groups = group_of(3)
    length, late = 100_000_000, 0.3
    found: dict[int, tuple[int, tuple[int, int]]] = {}
    begun = time.monotonic_ns()

    def run(rank: int) -> None:
        time.sleep(late * rank / 2)
        device = mock.Mock(step=lambda _: time.sleep(0.001))
        found[rank] = loop.soak(device, device, length, 110, decide=groups[rank].decide)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len({steps for steps, _ in found.values()}) == 1
    assert all(end - start >= length for _, (start, end) in found.values())
    assert min(start for _, (start, _) in found.values()) - begun >= late * 1e9, "the wait counted as soak"


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


def test_ranks_share_no_core_and_stay_on_one_node(tmp_path: Path) -> None:
    """Two sockets of 56 cores with two threads each, whose second threads have the last numbers."""
    for processor in range(224):
        core = processor % 112
        folder = tmp_path / f"cpu{processor}"
        (folder / f"node{core // 56}").mkdir(parents=True)
        (folder / "topology").mkdir()
        (folder / "topology/physical_package_id").write_text(f"{core // 56}\n")
        (folder / "topology/core_id").write_text(f"{core % 56}\n")
    for ranks in (2, 4, 8):
        parts = shares(by_core(range(224), tmp_path), ranks)
        cores = [{processor % 112 for processor in part} for part in parts]
        assert [len(one) for one in cores] == [112 // ranks] * ranks
        assert len(set().union(*cores)) == 112
        assert all(len({core // 56 for core in one}) == 1 for one in cores)
    assert by_core({3, 1, 2}, tmp_path / "none") == [1, 2, 3]


KILLED_PARENT = """
import os, signal, sys
from unittest import mock
from suite.contract.traits import Helpers
from suite.worker import parent

program = "import os, sys, time; print('helper', os.getpid(), file=sys.stderr, flush=True); time.sleep(60)"
waits = Helpers(program, ({},), {})
with mock.patch.object(parent, "traits_of", return_value=mock.Mock(helpers=waits)):
    with parent.helpers("any", 2):
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("program", "failed"), [("false", "one with status 1"), ("true", "")])
def test_failed_helper_is_found(program: str, failed: str) -> None:
    process = subprocess.Popen([program])
    process.wait(10)
    assert RunningHelpers({}, [process]).failed() == failed


def test_helpers_end_with_a_killed_parent() -> None:
    """A server that outlives its ranks would run until the machine is restarted."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_PARENT], stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT
    ) as parent:
        assert parent.stdin is not None
        assert parent.stderr is not None
        helper = int(parent.stderr.readline().split()[1])
        os.kill(helper, 0)  # it runs
        killed = time.monotonic()
        parent.stdin.close()
        parent.stderr.read()  # until the helper, which holds the pipe, has ended too
        assert time.monotonic() - killed < 30
    assert parent.returncode == -signal.SIGKILL


ENDING = """
import atexit, sys, time
from suite.worker.main import main

def repeat(job, channel, started):
    atexit.register(time.sleep, 600)
    if job.repeat:
        raise ValueError("of this test")

raise SystemExit(main(repeat))
"""


@pytest.mark.parametrize(("repeat", "event", "status"), [(0, "done", 0), (1, "fault", 1)])
def test_rank_on_a_gpu_ends_without_the_cleanup_that_could_wait(
    repeat: int, event: str, status: int, tmp_path: Path
) -> None:
    """NCCL's cleanup waits for captured graphs: here it takes ten minutes."""
    job = Job(TWO_GPUS.key, "throughput", 1, repeat, {}, "cuda:0", 1, True, 0, 0, "", "", world_size=2)
    values = {**asdict(job), "kind": BENCHMARK}
    line = json.dumps({"token": "t", "job": values, "peers": []}).encode() + b"\n"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(
        [sys.executable, "-c", ENDING],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
        cwd=tmp_path,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()  # open: its end would end the worker
            assert process.wait(timeout=60) == status
            assert f'"event":"{event}"' in process.stdout.read().decode()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("framework", "device", "status", "at_once"),
    [("jax", "cpu", STRANDED, True), ("jax", "cpu", 0, False), ("jax", "cpu", 1, False),
     ("jax", "cuda:0", 0, True), ("mxnet", "cpu", STRANDED, False)],
)  # fmt: skip
def test_rank_that_lost_another_one_does_not_wait_for_it_in_its_cleanup(
    framework: str, device: str, status: int, at_once: bool
) -> None:
    key = replace(TWO.key, framework=framework)
    job = Job(key, "throughput", 7, 0, {}, device, 1, True, 0, 0, "", "", world_size=2)
    assert worker_main._ends_without_cleanup(job, status) == at_once
