"""Quality mode: train to the target. Rank 0 predicts, and the host computes the score.

Time to quality is the time from the first touch of the data to the score that reaches the target, with
set-up, compilation and all evaluations.
"""

from __future__ import annotations

import math
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from suite import workloads
from suite.common.stream import digest_arrays
from suite.worker import children, record
from suite.worker.group import SpanBarrier
from suite.workloads import specification

if TYPE_CHECKING:
    from suite.contract import Job
    from suite.worker.channel import Channel
    from suite.worker.group import Group


def train_to_target(
    job: Job, channel: Channel, framework: Any, pairs: Any, group: Group, import_ns: int
) -> None:
    """Train until the harness sends stop, or for at most ``job.quality['max_epochs']`` epochs."""
    channel.send("first_touch")
    channel.wait("go")
    barrier = SpanBarrier(group)
    barrier.enter()
    started = monotonic_ns()
    channel.phase("setup")
    data = record.RecordingData(workloads.open_data(job), recording=False)
    pair = pairs.Pair(job, framework, data)
    initial = digest_arrays(pair.parameters())
    setup_ns = monotonic_ns() - started
    scaling_before = record.scaling(framework)
    cpu_from = children.cpu_time_ns()
    steps, input_wait_ns = _train(job, channel, framework, pair, data)
    cpu_ns = children.cpu_time_ns() - cpu_from
    closed = monotonic_ns()
    barrier.leave()
    # Rank 0 times the repeat: with other ranks, until all of them are done.
    timed = (barrier.open_ns, barrier.close_ns) if job.world_size > 1 else (started, closed)
    channel.phase("report")
    channel.send(
        "repeat_end",
        import_ns=import_ns,
        setup_ns=setup_ns,
        steps=steps,
        cpu_time_ns=cpu_ns,
        input_wait_ns=input_wait_ns,
        initial=initial,
        final=digest_arrays(pair.parameters()),
        timed={"open_ns": timed[0], "close_ns": timed[1]},
        window={"open_ns": started, "close_ns": closed, "collect_ns": 0},
        memory={"peak_rss_bytes": record.peak_rss_bytes(), **framework.memory()},
        dtypes=framework.dtypes(),
        modules_digest=record.modules_digest(),
        **record.loss_scale(scaling_before, record.scaling(framework)),
    )


def _train(
    job: Job, channel: Channel, framework: Any, pair: Any, data: record.RecordingData
) -> tuple[int, int]:
    """Train; returns the number of steps, and the time (ns) spent waiting for their batches."""
    epoch_steps = data.steps_per_epoch
    limit = epoch_steps * job.quality["max_epochs"]
    channel.phase("train")
    step = waited = 0
    while step < limit:
        for _ in range(epoch_steps):
            pair.step(step)
            step += 1
        framework.synchronize()
        losses = [float(loss) for loss in pair.collect()]
        if not all(math.isfinite(loss) for loss in losses):
            raise FloatingPointError(f"a loss between steps {step - epoch_steps} and {step} is not finite")
        waited += data.wait_ns
        data.forget()
        # Every rank reports its epochs, so that all proceed together.
        channel.send("evaluation", **({} if job.rank else _evaluate(job, pair, data, step, losses)))
        if channel.wait("verdict")["stop"]:
            break
    return step, waited


def _evaluate(job: Job, pair: Any, data: Any, step: int, losses: list[float]) -> dict[str, Any]:
    """Predict the evaluation data; the mean loss is that of the rows of this rank."""
    parts: list[dict[str, Any]] = [pair.predict(arrays) for arrays in data.evaluation()]
    merged: dict[str, Any] = {
        name: np.concatenate(_padded([part[name] for part in parts])) for name in parts[0]
    }
    name = f"predictions-{step}.npz"
    np.savez(Path(job.scratch_dir) / name, **merged)
    units = _units(job, step)
    return {
        "step": step,
        "epoch": step // data.steps_per_epoch,
        "file": name,
        "digest": digest_arrays(merged),
        "mean_loss": (math.fsum(losses) / len(losses) * job.world_size).hex(),  # of shares of the mean
        "units": units,
    }


def _padded(parts: list[Any]) -> list[Any]:
    """Pad two-dimensional ``parts`` of different widths, such as token ids, with zeros to one width."""
    if parts[0].ndim != 2:
        return parts
    width = max(part.shape[1] for part in parts)
    return [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]


def _units(job: Job, step: int) -> int | None:
    """Units of work of ``step`` steps if each step has the same number, else None."""
    try:
        per_step = set(specification(job.key.workload).units(job.key, job.seed))
    except ValueError:  # only throughput mode needs a pinned list of batches
        return None
    return step * per_step.pop() if len(per_step) == 1 else None
