"""Repeats of JAX on several ranks load what the first one compiled, on every rank."""

from __future__ import annotations

import json
from pathlib import Path

from tests.equivalence.interpreters import run


def test_every_rank_finds_what_rank_0_compiled(tmp_path: Path) -> None:
    done = run("jax", "tests.equivalence.jax_ranks_cache", str(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])  # after lines of Gloo
    (_, losses_0), (_, losses_1) = found["first"]
    (_, again_0), (hits, again_1) = found["second"]
    # Only rank 0 writes to the cache, and programs of one device belong to its rank: a hit of rank 1 is a
    # program of all ranks. It may have one the first time already, where rank 0 was done before it began.
    assert hits > 0
    assert (again_0, again_1) == (losses_0, losses_1)
