"""The harness's end of the protocol, with real processes that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from suite.containers.engines.attestation import ContainerExit
from suite.containers.engines.native import WorkerCommand
from suite.contract import BENCHMARK
from suite.harness.process import LocalProcess
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from tests.fixtures import image_files

SCRIPT = Path(__file__).parents[1] / "fixtures" / "workers" / "scripted.py"


def start(behaviour: str, folder: Path) -> WorkerProcess:
    argv = (sys.executable, str(SCRIPT), behaviour)
    worker = WorkerProcess(WorkerCommand(argv, {"PATH": os.environ["PATH"]}, folder), folder / "debug.log")
    worker.configure({})
    return worker


def gone(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(("line", "status"), [("kill -9 $$", -9), ("exit 125", 4)])
def test_killed_client_counts_more_than_how_its_container_ended(
    line: str, status: int, tmp_path: Path
) -> None:
    """The container ends with exit code 4 at the end of its input: before or after it is asked for."""
    command = WorkerCommand(("sh", "-c", line), {"PATH": os.environ["PATH"]}, tmp_path)
    client = LocalProcess(command, tmp_path / "debug.log", lambda: ContainerExit(4, False), lambda: None)
    try:
        assert client.ended().status == status
    finally:
        client.end()


@pytest.mark.parametrize(
    ("behaviour", "code", "exit_code", "number"),
    [
        ("crash", "crashed", 7, None),
        ("killed", "killed", None, 9),
        ("memory", "out_of_memory", 1, None),
        ("silent", "timed_out", None, None),
        ("confused", "protocol", None, None),
    ],
)
def test_worker_failure_has_code_and_phase(
    behaviour: str, code: str, exit_code: int | None, number: int | None, tmp_path: Path
) -> None:
    with start(behaviour, tmp_path) as worker:
        pid = worker.pid
        worker.expect("hello", 10)
        with pytest.raises(WorkerFailure) as caught:
            worker.expect("window_open", 1 if behaviour == "silent" else 20)
    failure = caught.value
    assert (failure.code, failure.phase) == (code, "setup")
    assert (failure.exit_code, failure.signal) == (exit_code, number)
    assert gone(pid)


def test_other_output_goes_to_the_debug_log(tmp_path: Path) -> None:
    with start("wait", tmp_path) as worker:
        event, received = worker.expect("hello", 10)
    assert event == {"event": "hello", "protocol": 1, "facts": {"python": "3"}}
    assert received <= time.monotonic_ns()
    assert b"a library prints this" in (tmp_path / "debug.log").read_bytes()


def test_leaving_the_context_ends_the_process_group(tmp_path: Path) -> None:
    with start("child", tmp_path) as worker:
        pid = worker.pid
        worker.expect("hello", 10)
        worker.expect("child", 10)
        assert not gone(pid)
    deadline = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(pid)


def test_end_of_file_on_stdin_ends_the_worker(tmp_path: Path) -> None:
    worker = start("wait", tmp_path)
    worker.expect("hello", 10)
    started = time.monotonic()
    worker.end()
    assert time.monotonic() - started < 10
    assert gone(worker.pid)


def test_ended_worker_leaves_no_pipe_open(tmp_path: Path) -> None:
    worker = start("wait", tmp_path)
    worker.expect("hello", 10)
    worker.end()
    process = worker._local.process
    assert [pipe is not None and pipe.closed for pipe in (process.stdin, process.stdout, process.stderr)] == [
        True, True, True,
    ]  # fmt: skip


def test_peak_memory_of_a_worker_excludes_its_parent() -> None:
    child = f"{sys.executable!r}, '-c', 'from suite.worker import record; print(record.peak_rss_bytes())'"
    parent = f"import subprocess; held = bytearray(b'x') * (400 << 20); subprocess.run([{child}], check=True)"
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert 5 << 20 < int(done.stdout) < 200 << 20


@pytest.mark.parametrize(
    ("loader", "device", "changes", "queues"),
    [
        ("dali", "cuda:0", {}, "32"),
        ("native", "cuda:0", {}, "32"),
        ("native", "cuda:0", {"data": "synthetic"}, None),
        ("native", "cuda:0", {"workload": "gnmt"}, None),
        ("native", "cuda:0", {"framework": "jax"}, None),
        ("native", "cpu", {}, None),
        ("pillow", "cuda:0", {}, None),
    ],
)
def test_decoder_on_a_gpu_gets_all_hardware_queues(
    loader: str, device: str, changes: dict[str, str], queues: str | None, tmp_path: Path
) -> None:
    job = image_files.job(tmp_path)
    job = replace(job, loader=loader, device=device, key=replace(job.key, **changes))  # type: ignore[arg-type]
    text = json.dumps({"token": "", "job": {"kind": BENCHMARK, **asdict(job)}})
    repeat = "lambda job, channel, started: channel.send(os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS'))"
    code = f"import os; from suite.worker.main import main; raise SystemExit(main({repeat}))"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        print(text, file=worker.stdin, flush=True)
        events = [json.loads(line[line.index("{") :])["event"] for line in worker.stdout]
    assert events == [queues, "done"]
