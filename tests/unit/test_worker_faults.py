"""The fault of a worker: a typed code, and one line without paths."""

from __future__ import annotations

import pytest

from suite.worker.main import _describe, _fault_code


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
