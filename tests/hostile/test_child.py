"""The child process: its limits and refusals, and the rejection of a killed check."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from suite.checker.sandboxed import CHECK_TASKS, check_in
from suite.cli import main
from suite.cli.archives import advice
from suite.rules import LATEST, load
from suite.sandbox import limits
from suite.sandbox.sandbox import Sandbox, SandboxError
from tests.fixtures.good_log import Good, write_good

ROOT = Path(__file__).resolve().parents[2]
TRIES = {
    "socket": "import _socket; _socket.socket()",
    "process": "import _posixsubprocess, os; os.posix_spawn('/bin/true', ['true'], {})",
    "fork": "import os; os.fork()",
    "exec": "import os; os.execv('/bin/true', ['true'])",
    "shell": "import os; os.system('true')",
    "write": "open('/tmp/never', 'w')",
    "append by flags": "import os; os.open('/tmp/never', os.O_WRONLY | os.O_CREAT)",
    "remove": "import os; os.remove('/tmp/never')",
    "folder": "import os; os.mkdir('/tmp/never')",
    "link": "import os; os.symlink('a', '/tmp/never')",
    "another package": "import numpy",
    "ctypes": "import ctypes",
    "pickle": "import pickle",
}


def python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process with the child's limits."""
    start = "from suite.sandbox import limits; limits.limit(); limits.refuse()\n"
    return subprocess.run(
        [sys.executable, "-c", start + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("name", TRIES)
def test_child_refuses_unneeded_operations(name: str) -> None:
    answer = python(TRIES[name])
    assert answer.returncode == 1
    assert "RefusedError" in answer.stderr


def test_child_may_read_and_import_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("read")
    answer = python(f"import colorsys; print(open({str(tmp_path / 'a')!r}).read())")
    assert answer.stdout == "read\n"


def test_late_import_writes_no_byte_code(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("print('imported')")
    keeps = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    answer = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import colorsys", env=keeps)
    assert answer.stdout == "imported\n", answer.stderr
    assert not (tmp_path / "__pycache__").exists()


def test_child_memory_is_limited() -> None:
    answer = python(f"bytearray({limits.MEMORY})")
    assert answer.returncode == 1
    assert "MemoryError" in answer.stderr


def test_child_files_are_limited(tmp_path: Path) -> None:
    answer = python("files = [open('/dev/null') for _ in range(70)]")
    assert "Too many open files" in answer.stderr
    with (tmp_path / "out").open("wb") as file:
        code = "import os; from suite.sandbox import limits; limits.limit(); os.write(1, b'x')"
        arguments = [sys.executable, "-c", code]
        written = subprocess.run(arguments, stdout=file, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    assert b"File too large" in written.stderr
    assert (tmp_path / "out").stat().st_size == 0


def test_child_processor_time_is_limited() -> None:
    answer = python("limits.grant_cpu(0)\nwhile True: pass")
    assert answer.returncode == -signal.SIGXCPU


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return write_good(tmp_path, Good(mode="quality"))


def test_killed_child_rejects_and_is_started_again(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(CHECK_TASKS) as sandbox:
        assert check_in(sandbox, result).accepted
        os.kill(sandbox.pid or 0, signal.SIGSTOP)  # so that the child dies after the request
        killers = []

        def after_the_request(child: subprocess.Popen[bytes], request: bytes) -> bytes:
            killers.append(threading.Timer(0.2, os.kill, (child.pid, signal.SIGKILL)))
            killers[0].start()
            return line(child, request)

        line = sandbox._line
        monkeypatch.setattr(sandbox, "_line", after_the_request)
        verdict = check_in(sandbox, result)
        killers[0].join()
        monkeypatch.undo()
        assert [found.rule for found in verdict.findings] == ["LOG-019"]
        assert verdict.findings[0].found == "the child process was ended by SIGKILL"
        assert not verdict.accepted
        assert check_in(sandbox, result).accepted
        assert sandbox.starts == 2


def test_endless_check_is_ended_and_rejected(result: Path) -> None:
    with Sandbox(CHECK_TASKS) as sandbox:
        assert check_in(sandbox, result).accepted
        sandbox.wall_seconds = 0.3
        os.kill(sandbox.pid or 0, signal.SIGSTOP)
        started = time.monotonic()
        verdict = check_in(sandbox, result)
        assert time.monotonic() - started < 10
        assert [found.found for found in verdict.findings] == ["no answer within 0.3 s"]
        sandbox.wall_seconds = 30
        assert check_in(sandbox, result).accepted


def test_log_019_rejects() -> None:
    assert load(LATEST).checks["LOG-019"].severity == "reject"


def test_unanswered_request_raises_an_error() -> None:
    with (
        Sandbox(CHECK_TASKS) as sandbox,
        pytest.raises(SandboxError, match="internal error of the suite: KeyError"),
    ):
        sandbox.run("nothing of the kind")


def test_child_gets_no_environment_variables(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    with Sandbox(CHECK_TASKS) as sandbox:
        check_in(sandbox, result)
        assert b"secret" not in Path(f"/proc/{sandbox.pid}/environ").read_bytes()


def test_child_writes_byte_code_if_the_caller_does(result: Path, tmp_path: Path) -> None:
    """Otherwise every check compiles the checker again."""
    for folder in ("suite", "rules"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.tmp")
        )
    byte_code = tmp_path / "suite" / "checker" / "__pycache__"
    for does_not, there in (("1", False), ("", True)):
        subprocess.run(
            [sys.executable, "-m", "suite", "check", str(result)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": does_not},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        assert byte_code.exists() == there


def test_many_paths_use_one_child(result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shutil.copytree(result, tmp_path / "other" / result.name)
    (other / "run.jsonl").write_bytes(b"{}")
    assert main(["check", str(result), str(other)]) == 1
    shown = capsys.readouterr().out
    assert "accepted: " in shown
    assert "rejected: " in shown


def archives(result: Path, root: Path) -> dict[str, Path]:
    """One archive of each kind, by the beginning of the command that unpacks it."""
    found = {"unzip": root / "a.bin", "tar -xf": root / "b.bin", "tar -xzf": root / "c.bin"}
    with zipfile.ZipFile(found["unzip"], "w") as bundle:
        bundle.write(result / "run.jsonl", "../../owned")
    for command, mode in (("tar -xf", "w"), ("tar -xzf", "w:gz")):
        with tarfile.open(found[command], mode) as bundle:  # type: ignore[call-overload]
            bundle.add(result / "run.jsonl", "../../owned")
    found["tar --zstd"] = root / "it's; a $(touch owned) name"
    found["tar --zstd"].write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    return found


def test_archive_is_refused_with_its_unpack_command(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "deep" / "er"
    root.mkdir(parents=True)
    for command, path in archives(result, root).items():
        assert main(["check", str(path)]) == 2
        printed = capsys.readouterr().err
        assert command in printed
        assert printed.count("\n") == 1
    assert not list(tmp_path.rglob("owned"))


def test_log_and_folder_are_not_archives(result: Path) -> None:
    assert advice(result) is None
    assert advice(result / "run.jsonl") is None
    os.mkfifo(result.parent / "pipe")
    assert advice(result.parent / "pipe") is None


def test_archive_name_is_escaped_in_the_advice(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J\u202e.zip"
    path.write_bytes(b"PK\x03\x04")
    printed = advice(path)
    assert printed is not None
    assert printed.isprintable()
    assert "\u202e" not in printed
