"""What the repeats of a run share: attested workers, and what was compiled."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from suite.containers.engines.attestation import Attestation, EngineProblem
from suite.containers.engines.native import WorkerCommand
from suite.harness.fingerprint import take_fingerprint
from suite.harness.progress import Progress
from suite.harness.session import Session
from suite.harness.worker_process import WorkerFailure
from tests.unit.test_plan import planned, settings

HELLO = """
import json, os, sys
token = json.loads(sys.stdin.readline())["token"]
os.write(1, token.encode() + b' {"event":"hello","facts":{}}\\n')
"""


def session(folder: Path, program: str = "") -> Session:
    """A session whose workers execute ``program`` and have no container."""

    def attest(number: int, process: int) -> Attestation:
        raise EngineProblem(f"no container of worker {number}")

    workers = SimpleNamespace(attest=attest, ended=lambda number: None, remove=lambda number: None)
    prepared = SimpleNamespace(
        plan=planned(settings(f"cache_dir={folder}", "reuse_compiled=true")),
        resources=SimpleNamespace(workers=workers),
        job=lambda repeat, scratch: {},
        command=lambda number, scratch: WorkerCommand(
            (sys.executable, "-c", program), dict(os.environ), folder
        ),
    )
    held = SimpleNamespace(held=nullcontext)
    return Session(*cast("Any", (prepared, None, {}, Progress(1), folder / "debug", None, held)))


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        (
            "sys.stdin.read()",
            "environment",
            "the engine cannot attest the container: no container of worker 5",
        ),
        ("raise SystemExit(3)", "crashed", "the worker ended in the phase start with exit code 3"),
    ],
)
def test_fingerprint_without_attestation_is_a_typed_failure(
    end: str, code: str, message: str, tmp_path: Path
) -> None:
    mine = session(tmp_path, HELLO + end)
    with pytest.raises(WorkerFailure) as caught:
        take_fingerprint(mine)
    mine.clean()
    assert (caught.value.code, caught.value.message) == (code, message)


def test_run_goes_on_if_what_was_compiled_cannot_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "compiled").touch()
    mine = session(tmp_path)
    (mine.scratch(0).parent / "cache" / "kernel").write_text("code")
    mine.keep_compiled()
    mine.clean()
    shown = capsys.readouterr().err
    assert (
        f"expected to copy what was compiled to {tmp_path}/compiled/pytorch, found Not a directory" in shown
    )
