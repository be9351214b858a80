"""A sweep over limits of containers: processors × memory, out of memory as an outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.pairs import DATA, QUICK, ROOT, published

pytestmark = pytest.mark.docker


def test_cells_of_processors_and_memory_are_ok_or_out_of_memory(tmp_path: Path) -> None:
    published("ncf", "mxnet")
    argv = [
        *(sys.executable, "-m", "suite", "sweep", "--workload", "ncf", "--framework", "mxnet"),
        *("--grid", "runtime.memory=100m,2g runtime.cpus=1,2", "--results-dir", str(tmp_path)),
        *("--format", "json", "--seed", "1", "runtime=docker", *QUICK, f"data_root={DATA}"),
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert {
        (cell["options"]["runtime.memory"], cell["options"]["runtime.cpus"]): cell["outcome"]
        for cell in cells
    } == {("100m", "1"): "oom", ("100m", "2"): "oom", ("2g", "1"): "ok", ("2g", "2"): "ok"}
    again = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert "4 done, 0 skipped, 0 to run" in again.stderr
