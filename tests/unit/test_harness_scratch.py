"""The scratch folder of a run: created on demand, removed at the end, or by the next run after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from suite.harness.scratch import Scratch

HOLD = """
import pathlib, sys, time
from suite.harness.scratch import Scratch
(Scratch(pathlib.Path(sys.argv[1])).folder("repeat-0") / "file").write_text("x")
print("ready", flush=True)
time.sleep(600)
"""


def test_scratch_folder_is_removed_at_its_end(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "cache")
    scratch.remove()
    assert list(tmp_path.iterdir()) == []
    (scratch.folder("repeat-0") / "file").write_text("x")
    assert scratch.folder("repeat-1").parent == scratch.folder("repeat-0").parent
    scratch.remove()
    assert list((tmp_path / "cache").iterdir()) == []


def test_scratch_of_killed_run_is_removed_and_of_living_run_kept(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        (left,) = tmp_path.iterdir()
        first = Scratch(tmp_path)
        first.folder("repeat-0")
        assert (left / "repeat-0" / "file").exists()
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
    second = Scratch(tmp_path)
    assert list(second.folder("repeat-0").iterdir()) == []
    assert not (left / "repeat-0" / "file").exists()
    for scratch in (first, second):
        scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_runs_have_the_same_folder_unless_they_run_at_once(tmp_path: Path) -> None:
    """PyTorch's compiler keeps absolute paths, by which a later run finds the fastest variant of a kernel."""
    (tmp_path / "run-0").touch()  # not a folder of a run
    first, second = Scratch(tmp_path), Scratch(tmp_path)
    folders = [scratch.folder("cache") for scratch in (first, second)]
    assert folders[0] != folders[1]
    first.remove()
    third = Scratch(tmp_path)
    assert third.folder("cache") == folders[0]
    for scratch in (second, third):
        scratch.remove()


def test_later_scratch_starts_from_what_an_earlier_one_compiled(tmp_path: Path) -> None:
    compiled, outside = tmp_path / "compiled", tmp_path / "outside"
    outside.write_text("not of the worker")
    first = Scratch(tmp_path / "cache", compiled)
    cache = first.folder("cache")
    (cache / "inductor" / "ab").mkdir(parents=True)
    (cache / "inductor" / "ab" / "kernel.py").write_text("first")
    (cache / "link").symlink_to(outside)
    (cache / "traced").mkdir()
    (cache / "traced" / "graph").write_text("of this run only")
    first.keep_compiled()
    first.remove()
    second = Scratch(tmp_path / "cache", compiled)
    kernel = second.folder("cache") / "inductor" / "ab" / "kernel.py"
    assert kernel.read_text() == "first"
    kernel.write_text("second")
    (kernel.parent / "other.py").write_text("second")
    second.keep_compiled()
    second.remove()
    kept = {path: path.read_text() for path in compiled.rglob("*") if path.is_file()}
    folder = compiled / "inductor" / "ab"
    assert kept == {folder / "kernel.py": "first", folder / "other.py": "second"}


def test_kernels_of_triton_are_found_in_a_later_scratch(tmp_path: Path) -> None:
    """Triton lists the files of a kernel by absolute paths: those of earlier runs were compiled again."""
    compiled = tmp_path / "compiled"

    def children(cache: Path) -> list[Path]:
        listed = json.loads((cache / "triton" / "ab" / "__grp__kernel.json").read_text())
        return [Path(path) for path in listed["child_paths"].values()]

    first = Scratch(tmp_path / "caché", compiled)
    kernel = first.folder("cache") / "triton" / "ab" / "kernel.cubin"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("code")
    group = json.dumps({"child_paths": {kernel.name: str(kernel)}})
    (kernel.parent / "__grp__kernel.json").write_text(group)
    first.keep_compiled()
    assert children(compiled) == [compiled / "triton" / "ab" / kernel.name]
    second = Scratch(tmp_path / "caché", compiled)  # at the same time, hence elsewhere
    (found,) = children(second.folder("cache"))
    assert found != kernel
    assert found.read_text() == "code"
    for scratch in (first, second):
        scratch.remove()


def test_concurrent_removals_close_the_lock_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both_inside = threading.Barrier(2)
    closed: list[int] = []
    close = os.close

    def removing(path: Path, ignore_errors: bool) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both_inside.wait(timeout=0.5)

    def closing(descriptor: int) -> None:
        closed.append(descriptor)
        with contextlib.suppress(OSError):
            close(descriptor)

    made = Scratch(tmp_path)
    made.folder("repeat-0")
    monkeypatch.setattr("suite.harness.scratch.shutil.rmtree", removing)
    monkeypatch.setattr("suite.harness.scratch.os.close", closing)
    threads = [threading.Thread(target=made.remove) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(closed) == 1
