"""What the processes that a worker started have used is the worker's."""

from __future__ import annotations

import subprocess
import sys
import time

from suite.worker import children

BUSY = """
import os, sys, time
if len(sys.argv) > 1:
    os.fork()
until = time.process_time() + 0.2
while time.process_time() < until:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def busy(*words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", BUSY, *words]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(1 + len(words)):
        process.stdout.readline()
    return process


def others_ns() -> int:
    return children.cpu_time_ns() - time.process_time_ns()


def test_living_descendants_are_counted_and_those_that_ended() -> None:
    before, known = others_ns(), set(children.living())
    with busy("fork") as process:
        assert len(set(children.living()) - known) == 2
        living = others_ns() - before
        assert living > 390_000_000  # twice 0.2 s
        process.communicate("")
    ended = others_ns() - before
    assert ended > 190_000_000  # what nobody waited for is lost, as the kernel counts
    assert set(children.living()) <= known


def test_bytes_from_storage_are_summed() -> None:
    total = children.read_bytes()
    with busy() as process:
        more = children.read_bytes()
        process.communicate("")
    assert (total is None) == (more is None)
    if total is not None and more is not None:
        assert more >= total
