"""The fault of a worker: a typed code, and one line without paths."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from suite.containers.engines.native import PROJECT, WorkerCommand
from suite.contract import BENCHMARK, Job
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.worker.main import _describe, _fault_code
from tests.fixtures.forged_ranks import TWO


class ResourceExhaustedError(Exception):
    """An error with the name of TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "phase", "code"),
    [
        (MemoryError(), "setup", "out_of_memory"),
        (ResourceExhaustedError("tensor"), "window", "out_of_memory"),
        (OSError(12, "Cannot allocate memory"), "setup", "out_of_memory"),
        (RuntimeError("std::bad_alloc"), "compile", "out_of_memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "compile", "out_of_memory"),
        (RuntimeError("MXNetError: Failed to allocate CPU Memory"), "compile", "out_of_memory"),
        (FloatingPointError("loss of step 3 is nan"), "report", "non_finite_loss"),
        (FileNotFoundError(2, "ratings.dat"), "setup", "dataset"),
        (FileNotFoundError(2, "cache entry"), "window", "io"),
        (OSError(28, "No space left on device"), "compile", "io"),
        (ModuleNotFoundError("No module named 'torch'"), "import", "environment"),
        (RuntimeError("InvalidCxxCompiler: No working C++ compiler found in x"), "compile", "environment"),
        (ValueError("shapes"), "compile", "crashed"),
    ],
    ids=str,
)
def test_fault_code_of_each_error(error: Exception, phase: str, code: str) -> None:
    assert _fault_code(error, phase) == code


def test_describe_returns_one_line_without_paths() -> None:
    assert _describe(ValueError("bad /home/alice/x here\nmore")) == "ValueError: bad <path> here"
    stacked = RuntimeError('Traceback (most recent call last):\n  File "x.cc", line 5\nMXNetError: bad shape')
    assert _describe(stacked) == "RuntimeError: MXNetError: bad shape"
    assert _describe(ValueError()) == "ValueError: "


def test_describe_names_what_an_error_was_raised_from() -> None:
    """Triton's CompilationError begins with a line number only."""
    error, cause = RuntimeError("at 39:16:\nsource"), AssertionError("Both operands must be same dtype\nmore")
    error.__cause__ = cause
    text = "RuntimeError: at 39:16: (from AssertionError: Both operands must be same dtype)"
    assert _describe(error) == text
    cause.args = ("in /home/alice",)
    assert _describe(error) == "RuntimeError: at 39:16: (from AssertionError: in <path>)"
    error.args = ("wrapped AssertionError: in /home/alice",)
    assert _describe(error) == "RuntimeError: wrapped AssertionError: in <path>"


FAILING_PARENT = """
import os, sys, time
from suite.worker.main import main

def repeat(job, channel, started):
    channel.phase("setup")
    if job.rank == 1:
        os.write(channel._out, b"x" * (9 << 20))
    time.sleep(60)

if "no interpreter" in sys.argv:
    sys.executable = "/nowhere/python"
raise SystemExit(main(repeat))
"""


@pytest.mark.parametrize(
    ("fault", "code", "phase", "message"),
    [
        ("no interpreter", "io", "import", "FileNotFoundError: [Errno 2] No such file or directory: <path>"),
        (
            "long line",
            "protocol",
            "setup",
            "RuntimeError: protocol: rank 1 wrote a line of more than 8388608 bytes",
        ),
    ],
)
def test_failure_of_the_parent_keeps_its_message(
    fault: str, code: str, phase: str, message: str, tmp_path: Path
) -> None:
    job = Job(TWO.key, "throughput", 1, 0, {}, "cpu", 1, True, 0, 0, "", "", world_size=2)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}
    start = WorkerCommand((sys.executable, "-c", FAILING_PARENT, fault), environment, tmp_path)
    with WorkerProcess(start, tmp_path / "debug.log") as worker:
        worker.configure({**asdict(job), "kind": BENCHMARK})
        with pytest.raises(WorkerFailure) as caught:
            worker.expect_all("hello", 30)
    failure = caught.value
    assert (failure.code, failure.phase, failure.exit_code) == (code, phase, 1)
    assert failure.message == f"rank 0 (node 0): {message}"
