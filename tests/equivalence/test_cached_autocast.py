"""Repeats after the first take graphs with autocast from the compilation cache."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run


def test_graph_with_autocast_is_cached() -> None:
    result = run("pytorch", "tests.equivalence.cached_autocast")
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout)
    assert "_enter_autocast" in found["before"]  # otherwise this version of PyTorch needs no cache_autocast
    assert found["after"] is None
