"""The child that checks: its limits hold, what no check needs is refused, a killed check is a rejection."""

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
    """Run ``code`` in a process that has taken on the child's limits."""
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
def test_what_no_check_needs_is_refused(name: str) -> None:
    answer = python(TRIES[name])
    assert answer.returncode == 1
    assert "RefusedError" in answer.stderr


def test_reading_and_the_standard_library_are_not_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("read")
    answer = python(f"import colorsys; print(open({str(tmp_path / 'a')!r}).read())")
    assert answer.stdout == "read\n"


def test_a_late_import_does_not_try_to_keep_byte_code(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("print('imported')")
    keeps = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    answer = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import colorsys", env=keeps)
    assert answer.stdout == "imported\n", answer.stderr
    assert not (tmp_path / "__pycache__").exists()


def test_memory_is_limited() -> None:
    answer = python(f"bytearray({limits.MEMORY})")
    assert answer.returncode == 1
    assert "MemoryError" in answer.stderr


def test_files_and_their_size_are_limited(tmp_path: Path) -> None:
    answer = python("files = [open('/dev/null') for _ in range(70)]")
    assert "Too many open files" in answer.stderr
    with (tmp_path / "out").open("wb") as file:
        code = "import os; from suite.sandbox import limits; limits.limit(); os.write(1, b'x')"
        words = [sys.executable, "-c", code]
        written = subprocess.run(words, stdout=file, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    assert b"File too large" in written.stderr
    assert (tmp_path / "out").stat().st_size == 0


def test_processor_time_is_limited() -> None:
    answer = python("limits.grant_cpu(0)\nwhile True: pass")
    assert answer.returncode == -signal.SIGXCPU


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return write_good(tmp_path, Good(mode="quality"))


def test_a_child_that_is_killed_rejects_and_is_started_again(result: Path) -> None:
    with Sandbox(CHECK_TASKS) as sandbox:
        assert check_in(sandbox, result).accepted
        os.kill(sandbox.pid or 0, signal.SIGSTOP)  # so that the question is asked of a child that then dies
        killer = threading.Timer(0.2, os.kill, (sandbox.pid, signal.SIGKILL))
        killer.start()
        verdict = check_in(sandbox, result)
        killer.join()
        assert [found.rule for found in verdict.findings] == ["LOG-019"]
        assert verdict.findings[0].actual == "the child process was ended by SIGKILL"
        assert not verdict.accepted
        assert check_in(sandbox, result).accepted
        assert sandbox.starts == 2


def test_a_check_without_end_is_ended_and_rejects(result: Path) -> None:
    with Sandbox(CHECK_TASKS) as sandbox:
        assert check_in(sandbox, result).accepted
        sandbox.wall_seconds = 0.3
        os.kill(sandbox.pid or 0, signal.SIGSTOP)
        started = time.monotonic()
        verdict = check_in(sandbox, result)
        assert time.monotonic() - started < 10
        assert [found.actual for found in verdict.findings] == ["no answer within 0.3 s"]
        sandbox.wall_seconds = 30
        assert check_in(sandbox, result).accepted


def test_the_rule_of_limits_rejects() -> None:
    assert load(LATEST).checks["LOG-019"].severity == "reject"


def test_a_question_that_cannot_be_answered_is_no_verdict() -> None:
    with (
        Sandbox(CHECK_TASKS) as sandbox,
        pytest.raises(SandboxError, match="internal error of the suite: KeyError"),
    ):
        sandbox.run("nothing of the kind")


def test_the_child_gets_nothing_of_the_environment(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    with Sandbox(CHECK_TASKS) as sandbox:
        check_in(sandbox, result)
        assert b"secret" not in Path(f"/proc/{sandbox.pid}/environ").read_bytes()


def test_byte_code_is_kept_where_the_caller_keeps_it(result: Path, tmp_path: Path) -> None:
    """Else every check compiles the checker again."""
    for folder in ("suite", "rules"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    kept = tmp_path / "suite" / "checker" / "__pycache__"
    for does_not, there in (("1", False), ("", True)):
        subprocess.run(
            [sys.executable, "-m", "suite", "check", str(result)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": does_not},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        assert kept.exists() == there


def test_many_paths_are_one_child_and_one_answer(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(result, tmp_path / "other" / result.name)
    (other / "run.jsonl").write_bytes(b"{}")
    assert main(["check", str(result), str(other)]) == 1
    shown = capsys.readouterr().out
    assert "accepted: " in shown
    assert "rejected: " in shown


def archives(result: Path, place: Path) -> dict[str, Path]:
    """One archive of each kind, by a word of the command that unpacks it."""
    found = {"unzip": place / "a.bin", "tar -xf": place / "b.bin", "tar -xzf": place / "c.bin"}
    with zipfile.ZipFile(found["unzip"], "w") as bundle:
        bundle.write(result / "run.jsonl", "../../owned")
    for word, mode in (("tar -xf", "w"), ("tar -xzf", "w:gz")):
        with tarfile.open(found[word], mode) as bundle:  # type: ignore[call-overload]
            bundle.add(result / "run.jsonl", "../../owned")
    found["tar --zstd"] = place / "it's; a $(touch owned) name"
    found["tar --zstd"].write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    return found


def test_an_archive_is_told_how_to_be_unpacked_and_left_alone(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "deep" / "er"
    place.mkdir(parents=True)
    for word, path in archives(result, place).items():
        assert main(["check", str(path)]) == 2
        told = capsys.readouterr().err
        assert word in told
        assert told.count("\n") == 1
    assert not list(tmp_path.rglob("owned"))


def test_a_log_and_a_folder_are_no_archives(result: Path) -> None:
    assert advice(result) is None
    assert advice(result / "run.jsonl") is None
    os.mkfifo(result.parent / "pipe")
    assert advice(result.parent / "pipe") is None


def test_an_archive_s_name_cannot_hide_a_command(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J\u202e.zip"
    path.write_bytes(b"PK\x03\x04")
    told = advice(path)
    assert told is not None
    assert told.isprintable()
    assert "\u202e" not in told
