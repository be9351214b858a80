"""The tool that runs workers without the harness: its limit and its exit status."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import cells


def test_worker_that_closes_its_output_and_runs_on_ends_at_the_limit(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import os, time; os.close(1); time.sleep(60)"]
    worker = cells.Worker(argv, dict(os.environ), tmp_path, tmp_path / "worker.log")
    try:
        row = cells.drive(worker, 2, None, None, 0)
    finally:
        worker.end()
    assert row["status"] == "timed_out"
    assert worker.elapsed() < 30


@pytest.mark.parametrize(("deadline", "shown"), [(0, "FAIL"), (1, "SKIP")])
def test_status_is_1_if_a_cell_is_not_done(
    deadline: int, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    options = ["--device=cpu", "--scale=mini", f"--out={tmp_path}", f"--deadline={deadline}"]
    monkeypatch.setattr(sys, "argv", ["cells", *options, "pytorch", str(program), "60", "ncf:infer"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cells.main() == 1
    assert capsys.readouterr().out.startswith(shown)
