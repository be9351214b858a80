"""In MXNet on a CPU the mark of a step lies where its last write ends, not where the host handed it over."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run


def test_a_mark_is_taken_when_all_that_the_step_writes_is_written() -> None:
    result = run("mxnet", "tests.equivalence.engine_timestamps")
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout)
    assert max(found["handed"], found["output"]) < 0.5 * found["updated"]  # else it says nothing
    assert 0.8 * found["updated"] < found["marked"] < 1.2 * found["updated"]
