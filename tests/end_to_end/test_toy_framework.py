"""A new framework needs one folder, one file per workload and one configuration file, and no other change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from suite.containers.engines.native import PROJECT

TOY = PROJECT / "tests" / "fixtures" / "toy_framework"


def copy_with_toy_framework(root: Path) -> Path:
    """Copy the project to ``root`` and add the toy framework, which needs only numpy."""
    ignored = shutil.ignore_patterns("__pycache__", "*.tmp")
    for name in ("suite", "conf", "rules", "containers"):
        shutil.copytree(PROJECT / name, root / name, ignore=ignored)
    shutil.copytree(TOY / "toy", root / "suite" / "frameworks" / "toy", ignore=ignored)
    shutil.copy(TOY / "ncf.py", root / "suite" / "workloads" / "ncf" / "toy.py")
    shutil.copy(TOY / "toy.yaml", root / "conf" / "framework")
    return root


def suite(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m suite`` in the copy."""
    return subprocess.run(
        [sys.executable, "-m", "suite", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_run_of_ncf_in_a_toy_framework_is_accepted(tmp_path: Path) -> None:
    root = copy_with_toy_framework(tmp_path / "project")
    folders = [f"{name}={tmp_path / name}" for name in ("results_dir", "data_root", "cache_dir")]
    done = suite(root, "run", "workload=ncf", "framework=toy", f"framework.python={sys.executable}", *folders)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = (tmp_path / "results_dir").glob("*Z-ncf-toy-train-*")
    checked = suite(root, "check", "--json", str(result))
    (verdict,) = json.loads(checked.stdout)
    assert checked.returncode == 0
    assert verdict["accepted"]
    assert verdict["scored"]
    header = json.loads((result / "run.jsonl").read_text().splitlines()[0])
    assert header["data"]["key"]["framework"] == "toy"


def test_dry_run_without_environment_is_refused(tmp_path: Path) -> None:
    root = copy_with_toy_framework(tmp_path / "project")
    done = suite(root, "run", "workload=ncf", "framework=toy", "runtime=native", "dry=true")
    assert done.returncode == 13, done.stderr
    assert done.stderr.startswith("error: there is no locked build of toy")


def test_framework_without_the_pair_is_refused_with_alternatives(tmp_path: Path) -> None:
    done = suite(
        copy_with_toy_framework(tmp_path / "project"), "run", "workload=gnmt", "framework=toy", "dry=true"
    )
    assert done.returncode == 10
    assert "framework: expected one of jax, mxnet, pytorch, tensorflow, found 'toy'" in done.stderr
