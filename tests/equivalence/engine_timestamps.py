"""When MXNet's engine takes the timestamp of a step whose output is ready early and whose update takes long.

Run in MXNet's interpreter; prints nanoseconds after the timestamp before the step: ``enqueued`` (the host has
enqueued the step and its timestamp), ``output``, ``updated`` (both are written), ``timestamp`` (was taken).
Then as much work again, of which the first half is a gradient, and the second writes to it, as an exchange
does: ``arrival`` and ``exchanged``, its end.
"""

from __future__ import annotations

import json
from time import monotonic_ns
from typing import Any

import mxnet as mx

from suite.frameworks.mxnet.timestamps import EngineArrivals, EngineTimestamps, handles_of

PRODUCTS = 30  # of 1,500 rows and columns: seconds on one core; the host enqueues them in milliseconds


def main() -> None:
    """See the module."""
    matrix, parameter = mx.nd.ones((1500, 1500)), mx.nd.zeros((1500, 1500))
    output = mx.nd.ones((1,))
    timestamps, written = EngineTimestamps(), handles_of([parameter])
    mx.nd.waitall()
    timestamps.prepare(2)
    timestamps.record_timestamp(0)
    start = monotonic_ns()
    result = output + 1
    written[-1] = result.handle
    timestamps.ends_with(written)
    for _ in range(PRODUCTS):
        mx.nd.dot(matrix, matrix, out=parameter)
    timestamps.record_timestamp(1)
    report = {"enqueued": monotonic_ns() - start}
    result.wait_to_read()
    report["output"] = monotonic_ns() - start
    parameter.wait_to_read()
    report["updated"] = monotonic_ns() - start
    mx.nd.waitall()
    report["timestamp"] = timestamps.read(2)[0]
    print(json.dumps(report | exchange(matrix, parameter)))


def exchange(matrix: Any, gradient: Any) -> dict[str, int]:
    """See the module."""
    arrivals = EngineArrivals()
    arrivals.prepare()
    start = monotonic_ns()
    for half in range(2):
        for _ in range(PRODUCTS // 2):
            mx.nd.dot(matrix, matrix, out=gradient)
        if half == 0:
            arrivals.record_after([gradient])
    mx.nd.waitall()
    (arrival,) = arrivals.read(1) or [0]
    return {"arrival": arrival - start, "exchanged": monotonic_ns() - start}


if __name__ == "__main__":
    main()
