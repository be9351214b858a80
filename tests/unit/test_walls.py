"""The external packages that each group of packages may import, which import-linter does not check."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from suite.contract.traits import framework_names, traits_of

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
    "baseline",
    "cli",
)
JUDGE = (
    *("log", "rules", "checker", "sandbox", "metrics", "compare"),
    *("report", "submissions", "advice", "audit", "mllog"),
)
OF_FRAMEWORK = {
    name: {traits_of(name).import_name, *traits_of(name).other_imports} for name in framework_names()
}
DECODERS = {"PIL", "nvidia", "lmdb"}  # a loader may import its decoder, or the library of a storage format
FRAMEWORKS = set().union(*OF_FRAMEWORK.values()) - DECODERS
PINNED = {"spec.py"}


def typing_only(node: ast.AST) -> bool:
    """Whether this is an ``if TYPE_CHECKING:`` block."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def imports(node: ast.AST) -> Iterator[str]:
    """Full names of the modules imported anywhere below ``node``, in functions too; no typing imports."""
    for child in ast.iter_child_nodes(node):
        if typing_only(child):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports are banned"
            yield child.module or ""
        yield from imports(child)


def forbidden_imports(path: Path, source: str | None = None) -> set[str]:
    """External packages that ``path`` imports and its group must not import."""
    relative = path.relative_to(SUITE)
    package = relative.parts[0]
    tops = {name.split(".")[0] for name in imports(ast.parse(source or path.read_text()))}
    external = tops - set(sys.stdlib_module_names) - {"suite"}
    if package == "contract" or (relative.name in PINNED and package == "workloads"):
        return external
    if package in INSIDE:
        allowed = OF_FRAMEWORK.get(relative.stem, set()) | OF_FRAMEWORK.get(
            relative.stem.split("_")[0], set()
        )
        if package == "frameworks":
            allowed = OF_FRAMEWORK.get(relative.parts[1], set())
        if package == "worker":
            allowed = set()
        return external - {"numpy"} - allowed - (DECODERS if package in ("common", "workloads") else set())
    return external & FRAMEWORKS


def modules(*packages: str) -> list[Path]:
    """Every module of these packages."""
    return sorted(path for package in packages for path in (SUITE / package).rglob("*.py"))


@pytest.mark.parametrize("path", sorted(SUITE.rglob("*.py")), ids=lambda path: str(path.relative_to(SUITE)))
def test_module_imports_only_allowed_packages(path: Path) -> None:
    assert forbidden_imports(path) == set()


@pytest.mark.parametrize("path", modules(*INSIDE), ids=lambda path: str(path.relative_to(SUITE)))
def test_modules_inside_the_container_parse_under_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))
    assert not {"tomllib"} & set(imports(ast.parse(path.read_text())))


def test_modules_inside_the_container_import_neither_host_nor_checker() -> None:
    outside = tuple(f"suite.{package}" for package in (*HOST, *JUDGE))
    for path in modules(*INSIDE):
        found = [name for name in imports(ast.parse(path.read_text())) if name.startswith(outside)]
        assert found == [], path


@pytest.mark.parametrize(
    ("path", "line", "expected"),
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
def test_forbidden_import_is_found(path: str, line: str, expected: set[str]) -> None:
    assert forbidden_imports(SUITE / path, line) == expected


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "suite", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def imported_frameworks(graph: grimp.ImportGraph, module: str) -> set[str]:
    """The packages of frameworks that ``module`` or its submodules import, directly or not."""
    return {
        package
        for package in FRAMEWORKS & graph.modules
        if graph.chain_exists(module, package, as_packages=True)
    }


@pytest.mark.parametrize("group", [*HOST, *JUDGE])
def test_host_and_judge_import_no_framework_not_even_indirectly(group: str, graph: grimp.ImportGraph) -> None:
    assert imported_frameworks(graph, f"suite.{group}") == set()


@pytest.mark.parametrize("framework", framework_names())
def test_pair_imports_its_framework_alone(framework: str, graph: grimp.ImportGraph) -> None:
    found = imported_frameworks(graph, f"suite.workloads.ncf.{framework}")
    assert found - set(traits_of(framework).other_imports) == {traits_of(framework).import_name}


def test_import_linter_contracts_hold() -> None:
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("import-linter is not installed: make test installs it")
    answer = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout
