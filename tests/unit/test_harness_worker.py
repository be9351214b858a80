"""The harness against workers that break the protocol or end at any moment."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from suite.containers.engines.native import WorkerCommand
from suite.harness.process import LocalProcess
from suite.harness.run import logged_message
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.rules import LATEST, load

if TYPE_CHECKING:
    from suite.harness.remote_node import RemoteNode

START = "import json, os, sys, time\ntoken = json.loads(sys.stdin.readline())['token']\n"
SEND = "def send(text):\n    os.write(1, token.encode() + b' ' + text + b'\\n')\n"


def start(body: str, folder: Path, debug: Path | None = None) -> WorkerProcess:
    argv = (sys.executable, "-c", START + SEND + body)
    command = WorkerCommand(argv, {"PATH": os.environ["PATH"]}, folder)
    worker = WorkerProcess(command, folder / "debug.log" if debug is None else debug)
    worker.configure({})
    return worker


@pytest.mark.parametrize("slow", [0, 1])
def test_node_may_end_before_another_one_is_done(slow: int, tmp_path: Path) -> None:
    def command(rank: int) -> WorkerCommand:
        wait = "time.sleep(0.5)\n" if rank == slow else ""
        body = START + SEND + wait + f"send(b'{rank} ' + json.dumps({{'event': 'done'}}).encode())"
        return WorkerCommand((sys.executable, "-c", body), {"PATH": os.environ["PATH"]}, tmp_path)

    other = LocalProcess(command(1), tmp_path / "other.log", lambda: None, lambda: None)
    with WorkerProcess(command(0), tmp_path / "debug.log", others=[cast("RemoteNode", other)]) as worker:
        worker.configure({"world_size": 2})
        found, _ = worker.expect_all("done", 10)
    assert found == [{"event": "done"}] * 2


@pytest.mark.parametrize(
    "text",
    [
        b"not json",
        b"[1]",
        b"{}",
        b'{"event":7}',
        b'{"event":"window_close"}',
        b'{"event":"phase","name":"\\u001b[2J"}',
        b'{"event":"fault","code":"crashed"}',
        b"\xff\xfe",
    ],
    ids=repr,
)
def test_malformed_event_is_a_protocol_failure(text: bytes, tmp_path: Path) -> None:
    body = f"send({text!r})\nsys.stdin.read()"
    with start(body, tmp_path) as worker, pytest.raises(WorkerFailure) as caught:
        worker.expect("hello", 10)
    assert caught.value.code == "protocol"


def test_fault_code_reserved_for_the_harness_is_a_crash(tmp_path: Path) -> None:
    body = """send(b'{"event":"fault","code":"interrupted","phase":"setup","message":"x"}')"""
    with start(body, tmp_path) as worker, pytest.raises(WorkerFailure) as caught:
        worker.expect("hello", 10)
    assert caught.value.code == "crashed"


def test_line_with_forged_token_is_debug_text(tmp_path: Path) -> None:
    body = """os.write(1, b'0123456789abcdef {"event":"done"}\\n')\nsend(b'{"event":"window_open"}')"""
    with start(body, tmp_path) as worker:
        event, _ = worker.receive(10)
    assert event == {"event": "window_open"}
    assert b'{"event":"done"}' in (tmp_path / "debug.log").read_bytes()


def test_fault_reported_before_a_command_keeps_its_code(tmp_path: Path) -> None:
    body = """send(b'{"event":"fault","code":"out_of_memory","phase":"setup","message":"x"}')\nos.close(0)"""
    with start(body, tmp_path) as worker:
        worker._local.process.wait(10)  # dead before the harness speaks: the pipe is broken
        with pytest.raises(WorkerFailure) as caught:
            worker.command("go")
    assert (caught.value.code, caught.value.exit_code) == ("out_of_memory", 0)


def test_full_disk_for_debug_text_does_not_stop_the_worker(tmp_path: Path) -> None:
    body = """[sys.stderr.write('x' * 99 + '\\n') for _ in range(9999)]\nsend(b'{"event":"window_open"}')"""
    with start(body, tmp_path, Path("/dev/full")) as worker:
        event, _ = worker.receive(10)
    assert event == {"event": "window_open"}


def test_debug_text_without_line_ends_is_bounded(tmp_path: Path) -> None:
    body = """[os.write(2, b'x' * (1 << 20)) for _ in range(9)]\nsend(b'{"event":"window_open"}')"""
    with start(body, tmp_path) as worker:
        worker.receive(20)
    assert (tmp_path / "debug.log").stat().st_size == 4 << 20


def test_long_report_is_reassembled_from_any_fragments(tmp_path: Path) -> None:
    body = """
text = b'{"event":"window_open","pad":"' + b'x' * 600_000 + b'"}'
line = token.encode() + b' ' + text + b'\\n'
for at in range(0, len(line), 9_973):
    os.write(1, line[at : at + 9_973])
sys.stdin.read()
"""
    with start(body, tmp_path) as worker:
        event, _ = worker.receive(10)
    assert len(event["pad"]) == 600_000


def test_unstartable_interpreter_is_an_environment_failure(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("neither a program nor a script")
    program.chmod(0o755)
    with pytest.raises(WorkerFailure) as caught:
        WorkerProcess(WorkerCommand((str(program),), {}, tmp_path), tmp_path / "debug.log")
    assert caught.value.code == "environment"


@pytest.mark.parametrize("text", ["a\n\x1b[2J", "é … ü", "x" * 501, "\n" * 400], ids=range(4))
def test_any_message_of_a_failure_can_be_logged(text: str) -> None:
    pattern = load(LATEST).schemas.schema("common")["$defs"]["text"]
    found = logged_message(text)
    assert re.fullmatch(pattern["pattern"], found)
    assert len(found) <= pattern["maxLength"]
    assert not re.fullmatch(pattern["pattern"], f"{text}…")
