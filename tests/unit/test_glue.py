"""A pair is model and loss, in few lines: the rest is in its framework's base pair."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite import workloads
from suite.containers.engines.native import PROJECT
from suite.contract.traits import framework_names, reference_framework

FRAMEWORKS = framework_names()
MOST = 100

# Members of the base pair. A workload's pair that defines one of these states why, here and in its docstring.
OWNED = {
    *("__init__", "step", "run", "reset", "restore", "collect", "gradient_norms"),
    *("parameters", "gradients", "update", "differentiate_and_exchange"),
    *("differentiate", "exchange", "apply"),  # the parts of a step in JAX
}
FUSED = "gradient and update are one: only the rows that a batch names have any"
EXCEPTIONS = {
    ("word2vec", "update"): FUSED,
    ("word2vec", "gradients"): FUSED,
}
EXCEPTIONS_IN_JAX = {
    ("word2vec", "differentiate"): FUSED,
    ("word2vec", "gradients"): FUSED,
    ("word2vec", "apply"): FUSED,
}


def statements(file: Path) -> int:
    """Lines of code, without blank lines, comments and docstrings."""
    tree = ast.parse(file.read_text("utf-8"))
    texts = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(file.read_text("utf-8").splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and at not in texts for at, line in lines
    )


def pair_files(framework: str) -> dict[str, Path]:
    """Each file with a pair of ``framework`` once, by its folder, however many workloads it serves."""
    folders = {
        str(workloads._folder(workload, framework))
        for workload in workloads.names()
        if framework in workloads.frameworks(workload)
    }
    return {name: PROJECT / "suite" / "workloads" / name / f"{framework}.py" for name in sorted(folders)}


def methods(file: Path) -> Iterator[str]:
    """The methods that the class ``Pair`` in ``file`` defines."""
    tree = ast.parse(file.read_text("utf-8"))
    (pair,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Pair"]
    yield from (node.name for node in pair.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_pair_class_is_found_once(framework: str) -> None:
    """Whole files are counted, including their models; the longest file is limited."""
    base = PROJECT / "suite" / "frameworks" / framework / "pair.py"
    counts = {name: statements(file) for name, file in pair_files(framework).items()}
    files = (base.parent.parent / "base.py", base)
    shared = {file.name: statements(file) for file in files if file.is_file()}
    worst = max(counts, key=lambda name: counts[name])
    print(f"{framework}: {counts}, shared {shared}; worst: {worst} with {counts[worst]}")
    assert counts.keys() <= pair_files(reference_framework()).keys()
    assert counts[worst] <= MOST


def test_reference_framework_has_six_pair_classes_of_which_one_serves_eight_workloads() -> None:
    folders = [str(workloads._folder(name, reference_framework())) for name in workloads.names()]
    assert len(set(folders)) == 6
    assert folders.count("_classification") == 8


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_pairs_define_only_model_and_loss(framework: str) -> None:
    found = {
        (name, method)
        for name, file in pair_files(framework).items()
        for method in methods(file)
        if method in OWNED
    }
    exceptions = EXCEPTIONS_IN_JAX if framework == "jax" else EXCEPTIONS
    assert found == {(name, method) for name, method in exceptions if name in pair_files(framework)}
