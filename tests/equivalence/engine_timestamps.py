"""When MXNet's engine takes the timestamp of a step whose output is ready early and whose update takes long.

Run in MXNet's interpreter; prints nanoseconds after the timestamp before the step: ``enqueued`` (the host has
enqueued the step and its timestamp), ``output``, ``updated`` (both are written), ``timestamp`` (was taken).
"""

from __future__ import annotations

import json
from time import monotonic_ns

import mxnet as mx

from suite.frameworks.mxnet.timestamps import EngineTimestamps, handles_of

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
    print(json.dumps(report))


if __name__ == "__main__":
    main()
