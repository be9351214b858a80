"""The three tenants' walls, where import-linter's contracts cannot see: which externals a tenant may use."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "suite"
INSIDE = ("contract", "common", "worker", "frameworks", "workloads")
HOST = (
    "harness",
    "telemetry",
    "datasets",
    "containers",
    "environments",
    "launch",
    "plan",
    "sweep",
    "replay",
    "doctor",
    "cli",
)
JUDGE = (
    *("log", "rules", "checker", "sandbox", "metrics", "compare"),
    *("report", "submissions", "audit", "mllog"),
)
OWN = {"pytorch": {"torch", "triton", "lmdb"}, "tensorflow": {"tensorflow", "keras"}, "mxnet": {"mxnet"}}
FRAMEWORKS = {"torch", "triton", "tensorflow", "keras", "mxnet"}
DECODERS = {"PIL", "nvidia", "lmdb"}  # a loader may import its decoder, or what a record form needs
PINNED = {"spec.py"}


def typing_only(node: ast.AST) -> bool:
    """Whether this is an ``if TYPE_CHECKING:`` block."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def imports(node: ast.AST) -> Iterator[str]:
    """Full names of the modules imported anywhere below ``node``, functions included, typing apart."""
    for child in ast.iter_child_nodes(node):
        if typing_only(child):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports are banned"
            yield child.module or ""
        yield from imports(child)


def strangers(path: Path, source: str | None = None) -> set[str]:
    """External packages that ``path`` imports and its tenant may not."""
    relative = path.relative_to(SUITE)
    tenant = relative.parts[0]
    tops = {name.split(".")[0] for name in imports(ast.parse(source or path.read_text()))}
    external = tops - set(sys.stdlib_module_names) - {"suite"}
    if tenant == "contract" or (relative.name in PINNED and tenant == "workloads"):
        return external
    if tenant in INSIDE:
        own = OWN.get(relative.stem, set()) | OWN.get(relative.stem.split("_")[0], set())
        if tenant == "frameworks":
            own = OWN.get(relative.parts[1], set())
        if tenant == "worker":
            own = set()
        return external - {"numpy"} - own - (DECODERS if tenant in ("common", "workloads") else set())
    return external & FRAMEWORKS


def modules(*rooms: str) -> list[Path]:
    """Every module of these rooms."""
    return sorted(path for room in rooms for path in (SUITE / room).rglob("*.py"))


@pytest.mark.parametrize("path", sorted(SUITE.rglob("*.py")), ids=lambda path: str(path.relative_to(SUITE)))
def test_a_module_imports_what_its_tenant_may(path: Path) -> None:
    assert strangers(path) == set()


@pytest.mark.parametrize("path", modules(*INSIDE), ids=lambda path: str(path.relative_to(SUITE)))
def test_inside_reads_under_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))
    assert not {"tomllib"} & set(imports(ast.parse(path.read_text())))


def test_the_inside_never_imports_the_other_tenants() -> None:
    outside = tuple(f"suite.{room}" for room in (*HOST, *JUDGE))
    for path in modules(*INSIDE):
        found = [name for name in imports(ast.parse(path.read_text())) if name.startswith(outside)]
        assert found == [], path


@pytest.mark.parametrize(
    ("place", "line", "found"),
    [
        ("worker/loop.py", "import torch", {"torch"}),
        ("worker/loop.py", "def f():\n    import psutil", {"psutil"}),
        ("workloads/ncf/spec.py", "import numpy as np", {"numpy"}),
        ("workloads/ncf/tensorflow.py", "import torch", {"torch"}),
        ("workloads/ncf/pytorch.py", "import torch, numpy", set()),
        ("contract/protocols.py", "if TYPE_CHECKING:\n    import numpy", set()),
        ("harness/run.py", "from mxnet import gluon", {"mxnet"}),
        ("checker/time.py", "import tensorflow as tf", {"tensorflow"}),
    ],
)
def test_a_planted_import_is_found(place: str, line: str, found: set[str]) -> None:
    assert strangers(SUITE / place, line) == found


def test_the_contracts_of_import_linter_hold() -> None:
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("import-linter is not installed: make test installs it")
    answer = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout
