"""In MXNet on a CPU the engine takes timestamps and arrivals when arrays are written, not when enqueued."""

from __future__ import annotations

import json

from tests.equivalence.interpreters import run


def test_timestamp_follows_last_write_of_step() -> None:
    result = run("mxnet", "tests.equivalence.engine_timestamps")
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout)
    assert (
        max(found["enqueued"], found["output"]) < 0.5 * found["updated"]
    )  # otherwise the test proves nothing
    assert 0.6 * found["updated"] < found["timestamp"] < 1.4 * found["updated"]
    # When an array is enqueued the share is about 0, at the end of the exchange about 1.
    assert 0.05 * found["exchanged"] < found["arrival"] < 0.95 * found["exchanged"]
