"""Fingerprint: a few untimed steps that an auditor can recompute and compare.

Each pass builds a new pair without the fast path, with the precision of the pass, on one synthetic batch: the
batch that all runs share or, with a salt, one of this run alone.
"""

from __future__ import annotations

import gc
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from suite import workloads
from suite.common.stream import digest_arrays, many_threads
from suite.contract import WARMUP_STEPS
from suite.worker import record

if TYPE_CHECKING:
    from suite.contract import Job
    from suite.worker.channel import Channel

# cuBLAS and MXNet read these when they are loaded; no other setting makes their choice deterministic.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "MXNET_ENFORCE_DETERMINISM": "1"}
_WARNING = re.compile(r"(\S+) does not have a deterministic implementation")


def prepare_environment() -> None:
    """Set the variables of deterministic libraries; call it before the framework is imported."""
    os.environ.update(ENVIRONMENT)


def send_fingerprint(job: Job, channel: Channel, frameworks: Any, pairs: Any) -> None:
    """Run every pass of ``job.passes`` and send the results."""
    channel.phase("fingerprint")
    with _nondeterministic_operations() as names:
        passes = [_run_pass(job, one, frameworks, pairs) for one in job.passes]
    channel.send("fingerprint", passes=passes, nondeterministic=sorted(names))


@contextmanager
def _nondeterministic_operations() -> Iterator[set[str]]:
    """Collect the operations that PyTorch reports as not deterministic in this block."""
    names: set[str] = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield names
        names |= {match[1] for one in caught if (match := _WARNING.search(str(one.message)))}


def _run_pass(job: Job, settings: Mapping[str, Any], frameworks: Any, pairs: Any) -> dict[str, Any]:
    key = replace(job.key, precision=settings["precision"])
    pass_job = replace(job, key=key, seed=settings["seed"], salt=tuple(settings["salt"]))
    framework = frameworks.Framework(pass_job)
    pair = pairs.Pair(pass_job, framework, workloads.open_data(pass_job))
    fields = (_train if key.phase == "train" else _infer)(pair, settings)
    del pair, framework
    gc.collect()  # the next pass may need as much memory
    return {"name": settings["name"], "precision": key.precision, "steps": settings["steps"], **fields}


def _train(pair: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Losses of all steps, norms of the first gradients, and digests of the parameters."""
    steps = settings["steps"]
    losses, pending = [], []
    with ThreadPoolExecutor(2) as pool:  # digests and norms beside the steps, which change no copy of theirs
        digests = {"initial": pool.submit(digest_arrays, pair.parameters())}
        for step in range(steps):
            if step < settings["gradients"]:
                pending.append(pool.submit(_norm, pair.gradients(step)))
            pair.step(step)
            losses += [float(loss) for loss in pair.collect()]
            if step + 1 == WARMUP_STEPS < steps:
                digests["step_10"] = pool.submit(digest_arrays, pair.parameters())
        digests["final"] = pool.submit(digest_arrays, pair.parameters())
    parameters = {name: digest.result() for name, digest in digests.items()}
    norms = [norm.result() for norm in pending]
    if not all(map(math.isfinite, (*losses, *norms))):
        raise FloatingPointError("fingerprint: a loss or gradient norm is not finite")
    return {
        "losses": [loss.hex() for loss in losses],
        "gradient_norms": [norm.hex() for norm in norms],
        "parameters": parameters,
    }


def _infer(pair: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Digests and norms of the outputs.

    Where the outputs are chosen, the scores before the choice replace them: an untrained model may choose
    the same word for any batch, or detect nothing.
    """
    if pair.chooses:
        outputs = [pair.outputs(step) for step in range(settings["steps"])]
    else:
        for step in range(settings["steps"]):
            pair.step(step)
        outputs = pair.collect()
    return {
        "outputs": [record.array_digest(output) for output in outputs],
        "output_norms": [_norm({"output": output}).hex() for output in outputs],
        "parameters": {"initial": digest_arrays(pair.parameters())},
    }


def _norm(arrays: Mapping[str, Any]) -> float:
    """The norm over all of ``arrays`` in float64, without a library that may choose the order of the sum."""

    def square(array: Any) -> float:
        return float(np.sum(np.square(array, dtype=np.float64)))

    with ThreadPoolExecutor(many_threads()) as pool:
        return math.sqrt(math.fsum(pool.map(square, arrays.values())))
