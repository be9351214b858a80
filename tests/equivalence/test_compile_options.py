"""A version of XLA without one of the compile options still compiles: JAX 0.11 lacks one that 0.10 has."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run


def test_option_that_xla_does_not_have_is_left_out() -> None:
    result = run("jax", "tests.equivalence.compile_options")
    assert result.returncode == 0, result.stderr[-4000:]
    assert json.loads(result.stdout) == {"xla_backend_optimization_level": 0}
