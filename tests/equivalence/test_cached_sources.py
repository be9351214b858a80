"""PyTorch's compilation cache, which later runs may reuse, returns no code of another source."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run


def test_cache_separates_sources_of_operators() -> None:
    result = run("pytorch", "tests.equivalence.cached_sources")
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout)
    first, changed, again = found["before"]
    assert first == changed == again  # otherwise this version of PyTorch needs no cache_by_source
    first, changed, again = found["after"]
    assert first == again != changed
    assert found["compiling process"] == "2"  # the last one announced
