"""Fingerprint: a few untimed steps that anybody can compute again, and compare.

Each pass builds the pair anew, without the fast path, in its own precision, on a synthetic batch that is
everybody's or, with a salt, this run's own. Nothing of it is timed.
"""

from __future__ import annotations

import gc
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from suite import workloads
from suite.common.stream import digest_arrays
from suite.contract import WARMUP_STEPS
from suite.worker import record

if TYPE_CHECKING:
    from suite.contract import Job
    from suite.worker.channel import Channel

# Read by cuBLAS and by MXNet when they are loaded: nothing else can make them choose the same way twice.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "MXNET_ENFORCE_DETERMINISM": "1"}
_UNABLE = re.compile(r"(\S+) does not have a deterministic implementation")


def prepare_environment() -> None:
    """Set what libraries read when they are loaded; call it before the framework is imported."""
    os.environ.update(ENVIRONMENT)


def take(job: Job, channel: Channel, frameworks: Any, pairs: Any) -> None:
    """Do every pass of ``job.passes`` and send what came out."""
    channel.phase("fingerprint")
    with _unable() as names:
        passes = [_pass(job, one, frameworks, pairs) for one in job.passes]
    channel.send("fingerprint", passes=passes, nondeterministic=sorted(names))


@contextmanager
def _unable() -> Iterator[set[str]]:
    """The operations of which PyTorch warns, in this block, that they are not deterministic."""
    names: set[str] = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield names
        names |= {found[1] for one in caught if (found := _UNABLE.search(str(one.message)))}


def _pass(job: Job, wanted: Mapping[str, Any], frameworks: Any, pairs: Any) -> dict[str, Any]:
    key = replace(job.key, precision=wanted["precision"])
    here = replace(job, key=key, seed=wanted["seed"], salt=tuple(wanted["salt"]))
    framework = frameworks.Framework(here)
    pair = pairs.Pair(here, framework, workloads.open_data(here))
    run = _train if key.phase == "train" else _infer
    found = run(pair, wanted)
    del pair, framework
    gc.collect()  # the next pass may need as much memory
    return {"name": wanted["name"], "precision": key.precision, "steps": wanted["steps"], **found}


def _train(pair: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Losses of the updates, norms of the first gradients, and digests of the parameters on the way."""
    steps = wanted["steps"]
    parameters = {"initial": digest_arrays(pair.parameters())}
    losses, norms = [], []
    for step in range(steps):
        if step < wanted["gradients"]:
            norms.append(_norm(pair.gradients(step)))
        pair.step(step)
        losses += [float(loss) for loss in pair.collect()]
        if step + 1 == WARMUP_STEPS < steps:
            parameters["step_10"] = digest_arrays(pair.parameters())
    parameters["final"] = digest_arrays(pair.parameters())
    if not all(map(math.isfinite, (*losses, *norms))):
        raise FloatingPointError("a loss or gradient norm of the fingerprint is not finite")
    return {
        "losses": [loss.hex() for loss in losses],
        "gradient_norms": [norm.hex() for norm in norms],
        "parameters": parameters,
    }


def _infer(pair: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Digests and norms of the outputs.

    Of what was chosen among classes or words little is left: an untrained model may choose the same for any
    batch. There the numbers that it was chosen by are taken.
    """
    for step in range(wanted["steps"]):
        pair.step(step)
    outputs = pair.collect()
    if any(np.issubdtype(output.dtype, np.integer) for output in outputs):
        outputs = [pair.outputs(step) for step in range(wanted["steps"])]
    return {
        "outputs": [record.array_digest(output) for output in outputs],
        "output_norms": [_norm({"output": output}).hex() for output in outputs],
        "parameters": {"initial": digest_arrays(pair.parameters())},
    }


def _norm(arrays: Mapping[str, Any]) -> float:
    """The norm over all of ``arrays``, added up in float64 without a library that may choose the order."""
    squares = (float(np.sum(np.square(array, dtype=np.float64))) for array in arrays.values())
    return math.sqrt(math.fsum(squares))
