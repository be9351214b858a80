"""Shared code of the plain MXNet scripts: the suite's batches and the number of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx

from peers.plain import Plain
from suite import workloads
from suite.contract import Job

Batch = dict[str, Any]


def staged(job: Job) -> Callable[[int], Batch]:
    """The suite's synthetic batches as arrays of MXNet, copied there once."""
    data = workloads.open_data(job)
    cached: dict[int | None, Batch] = {}

    def batch(step: int) -> Batch:
        slot = data.slot(step)
        if slot is None or slot not in cached:
            cached[slot] = {
                name: mx.nd.array(value, dtype=value.dtype) for name, value in data.batch(step).items()
            }
        return cached[slot]

    return batch


def plain(net: Any, step: Callable[[int], Any]) -> Plain:
    """The script for the timing loop; the first step determines the shapes."""
    step(0)
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    count = sum(parameter.data().size for parameter in trained)
    return Plain(step, lambda found: found.asnumpy(), mx.nd.waitall, count)
