"""A compiled function is refused if it does not compute the model."""

from __future__ import annotations

from tests.equivalence.interpreters import run


def test_wrong_compiled_function_is_refused() -> None:
    done = run("pytorch", "tests.equivalence.wrong_code")
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = dict(line.split(": ") for line in done.stdout.splitlines())
    assert outcomes == {
        "right": "kept",
        "rounded": "kept",
        "wrong": "refused",
        "not finite": "refused",
        "wrong for other shapes": "refused",
    }
