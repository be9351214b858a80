"""A new classifier is one specification, one configuration and one file of rules, for all frameworks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.equivalence import compare
from tests.equivalence.case import FRAMEWORKS, UNOPTIMISED
from tests.equivalence.interpreters import ROOT, interpreter

FILES = {
    "spec.py": "suite/workloads/squeezenet/spec.py",
    "conf.yaml": "conf/workload/squeezenet.yaml",
    "rules.json": "rules/practice/workloads/squeezenet.json",
}
DRY_RUN = (
    *(sys.executable, "-m", "suite", "run"),
    *("workload=squeezenet", "framework=pytorch", "runtime=native", "dry=true"),
)
COUNT = """
from suite.workloads import specification
spec = specification("squeezenet")
print(sum(p.size for p in spec.parameters(spec.dimensions("reference", "v1.1"))))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with three more files and no other change."""
    root = tmp_path_factory.mktemp("project")
    unwanted = shutil.ignore_patterns("__pycache__", "*.tmp")
    for folder in ("suite", "conf", "rules", "containers", "requirements", "tests/equivalence"):
        shutil.copytree(ROOT / folder, root / folder, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", root)
    for name, target in FILES.items():
        (root / target).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / "fixtures" / "squeezenet" / name, root / target)
    return root


def run_in(tree: Path, *command: str, code: int = 0, flags: str = "") -> subprocess.CompletedProcess[str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    settings = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    settings |= {"XLA_FLAGS": flags} if flags else {}
    done = subprocess.run(
        command,
        cwd=tree,
        env=inherited | settings,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def test_new_network_has_published_size(tree: Path) -> None:
    assert run_in(tree, sys.executable, "-c", COUNT).stdout == "1235496\n"


def test_frameworks_agree(tree: Path, tmp_path: Path) -> None:
    found: dict[str, dict[str, Any]] = {}
    for framework in FRAMEWORKS:
        file = tmp_path / f"{framework}.npz"
        module = ("-m", "tests.equivalence.new_network", "squeezenet", "v1.1", framework, str(file))
        flags = UNOPTIMISED if framework == "jax" else ""
        run_in(tree, str(interpreter(framework)), *module, flags=flags)
        with np.load(file) as arrays:
            found[framework] = dict(arrays)
    for first, second in combinations(FRAMEWORKS, 2):
        apart = compare.differences(found[first], found[second], "fp64")
        print(f"{first} {second}: largest {max(apart.items(), key=lambda item: item[1])}")
        assert len(apart) > 100
        assert compare.excesses(apart, "fp64") == {}


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("conf.yaml", 10, "expected conf/workload/squeezenet.yaml, found no such file"),
        ("rules.json", 14, "write rules/practice/workloads/squeezenet.json"),
    ],
)
def test_missing_file_of_new_workload_is_named(
    tree: Path, tmp_path: Path, name: str, code: int, message: str
) -> None:
    file = tree / FILES[name]
    file.rename(tmp_path / name)
    try:
        done = run_in(tree, *DRY_RUN, code=code)
    finally:
        (tmp_path / name).rename(file)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"precisions"',
            '"precision"',
            "squeezenet.json: expected the fields precisions, found none of them",
        ),
        ('"tolerances"', '"tolerance"', "squeezenet.json: expected the fields fingerprint.tolerances"),
        ('"variants": [', '"variants": ', "squeezenet.json: expected JSON, found another text"),
    ],
)
def test_unusable_rules_of_new_workload_are_explained(tree: Path, old: str, new: str, message: str) -> None:
    file = tree / FILES["rules.json"]
    text = file.read_text()
    file.write_text(text.replace(old, new))
    try:
        done = run_in(tree, *DRY_RUN, code=14)
    finally:
        file.write_text(text)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_checker_accepts_run_of_new_network(tree: Path) -> None:
    options = ("workload=squeezenet", "framework=pytorch", "data=synthetic", "results_dir=results")
    python = f"framework.python={interpreter('pytorch')}"
    done = run_in(tree, sys.executable, "-m", "suite", "run", *options, python)
    assert "accepted: " in done.stdout
