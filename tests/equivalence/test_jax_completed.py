"""On a CPU timestamps are taken on the host's clock: a step in JAX must have completed when it returns."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run


def test_steps_on_a_cpu_have_completed_when_they_return() -> None:
    done = run("jax", "tests.equivalence.jax_completed")
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"train": [True] * 5, "infer": [True] * 5}
