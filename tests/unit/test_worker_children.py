"""CPU time and storage reads of a worker include those of its child processes."""

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


def busy(*arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", BUSY, *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(1 + len(arguments)):
        process.stdout.readline()
    return process


def others_ns() -> int:
    return children.cpu_time_ns() - time.process_time_ns()


def test_cpu_time_includes_living_and_ended_descendants() -> None:
    before, known = others_ns(), set(children.descendants())
    with busy("fork") as process:
        assert len(set(children.descendants()) - known) == 2
        living = others_ns() - before
        assert living > 390_000_000  # twice 0.2 s
        process.communicate("")
    ended = others_ns() - before
    assert ended > 190_000_000  # the kernel does not count processes that no parent waited for
    assert set(children.descendants()) <= known


def test_read_bytes_never_decrease_with_a_child() -> None:
    total = children.read_bytes()
    with busy() as process:
        more = children.read_bytes()
        process.communicate("")
    assert (total is None) == (more is None)
    if total is not None and more is not None:
        assert more >= total
