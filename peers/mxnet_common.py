"""What the plain MXNet scripts share: the suite's batches and the parameters' count."""

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
    kept: dict[int | None, Batch] = {}

    def batch(step: int) -> Batch:
        slot = data.slot(step)
        if slot is None or slot not in kept:
            kept[slot] = {
                name: mx.nd.array(value, dtype=value.dtype) for name, value in data.batch(step).items()
            }
        return kept[slot]

    return batch


def plain(net: Any, step: Callable[[int], Any]) -> Plain:
    """As the timing loop takes it; shapes are known from one step."""
    step(0)
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    count = sum(parameter.data().size for parameter in trained)
    return Plain(step, lambda found: found.asnumpy(), mx.nd.waitall, count)
