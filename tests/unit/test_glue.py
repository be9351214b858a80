"""How much code a pair needs beside the networks, layers and loops that workloads share."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from statistics import median

from suite import workloads
from suite.runtime.native import PROJECT

MOST = 60


def statements(file: Path) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
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


def test_a_pair_is_little_glue() -> None:
    """A file that serves several workloads counts for each by its share, the models in it included."""
    folder = PROJECT / "suite" / "workloads"
    files = {
        (workload, framework): folder / str(workloads._folder(workload, framework)) / f"{framework}.py"
        for workload in workloads.names()
        for framework in workloads.frameworks(workload)
    }
    served = Counter(files.values())
    lines = {pair: statements(file) / served[file] for pair, file in files.items()}
    print({" ".join(pair): round(count) for pair, count in sorted(lines.items(), key=lambda item: item[1])})
    assert len(lines) == 39
    assert median(lines.values()) <= MOST
