"""Every hostile file is rejected by its rule, within limits of time and memory, without side effects."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from suite.checker.sandboxed import check_in
from suite.cli.check import print_verdict
from suite.sandbox.sandbox import Sandbox
from suite.submissions.package import SUBMISSION_TASKS
from tests.fixtures.good_log import Good, write_good
from tests.hostile.corpus import ROWS, SYSTEMS

SECONDS, MEBIBYTES = 2.0, 256


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small honest result."""
    return write_good(tmp_path_factory.mktemp("good"), Good(mode="quality"))


@pytest.fixture(scope="module")
def sandbox(good: Path) -> Iterator[Sandbox]:
    """One child for all tests, so that its peak memory is the largest of all."""
    with Sandbox(SUBMISSION_TASKS) as child:
        child.run("entry", path=good, root=good.parent)  # starts the child
        yield child


@pytest.fixture
def result(good: Path, tmp_path: Path) -> Path:
    """A copy of the honest result, to be edited."""
    return shutil.copytree(good, tmp_path / "results" / good.name)


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below ``root`` with type, size and time."""
    found = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            status = path.lstat()
            found[str(path)] = status.st_mode, status.st_size, status.st_mtime_ns
    return found


def processor_s(sandbox: Sandbox) -> float:
    """The processor time of the child, which other processes do not affect."""
    times = psutil.Process(sandbox.pid).cpu_times()
    return float(times.user + times.system)


def peak_mebibytes(sandbox: Sandbox) -> float:
    """The peak memory of the child."""
    lines = Path(f"/proc/{sandbox.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def test_result_is_accepted_before_the_edit(sandbox: Sandbox, result: Path) -> None:
    assert check_in(sandbox, result).accepted


@pytest.mark.parametrize("row", ROWS)
def test_hostile_log_is_rejected(row: str, sandbox: Sandbox, result: Path, tmp_path: Path) -> None:
    rule, spoil = ROWS[row]
    spoil(result)
    before = snapshot(tmp_path)
    before_s = processor_s(sandbox)
    verdict = check_in(sandbox, result)
    took = processor_s(sandbox) - before_s
    assert not verdict.accepted
    assert verdict.findings[0].rule == rule, verdict.findings[:3]
    assert took < SECONDS
    assert peak_mebibytes(sandbox) < MEBIBYTES
    assert snapshot(tmp_path) == before, "a check writes nothing"
    assert sandbox.starts == 1, "the child lived"
    out = io.StringIO()
    print_verdict(verdict, out)
    shown = out.getvalue()
    assert "Traceback" not in shown
    assert all(character == "\n" or character.isprintable() for character in shown)
    assert not any(line.startswith("::") for line in shown.splitlines())
    assert max(map(len, shown.splitlines())) < 300


@pytest.mark.parametrize("row", SYSTEMS)
def test_hostile_system_description_is_rejected(row: str, sandbox: Sandbox, result: Path) -> None:
    SYSTEMS[row](result)
    before_s = processor_s(sandbox)
    entry = sandbox.run("entry", path=result, root=result.parent)
    assert processor_s(sandbox) - before_s < SECONDS
    assert {"SUBM-003", "SUBM-004"} & {found["rule"] for found in entry["findings"]}
    assert peak_mebibytes(sandbox) < MEBIBYTES
    assert sandbox.starts == 1


def test_log_that_changes_while_it_is_read_is_rejected(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from suite.log import files
    from suite.log.finding import RecordError

    log = result / "run.jsonl"
    other = result.parent / "linked"
    os.link(log, other)  # a hard link is a regular file, but its change is detected
    monkeypatch.setattr(os, "fstat", _appending(os.fstat, other))
    descriptor = os.open(result, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(RecordError, match="LOG-001"):
            files.read_file(descriptor, "run.jsonl")
    finally:
        os.close(descriptor)


def _appending(fstat: object, path: Path) -> object:
    def look(descriptor: int) -> os.stat_result:
        found: os.stat_result = fstat(descriptor)  # type: ignore[operator]
        with path.open("ab") as file:
            file.write(b"{}\n")
        return found

    return look


def test_proc_file_is_rejected() -> None:
    from suite.log import files
    from suite.log.finding import RecordError

    descriptor = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(RecordError, match="does not change"):
            files.read_file(descriptor, "environ")
    finally:
        os.close(descriptor)
