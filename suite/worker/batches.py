"""The digests of a repeat's first batches, without a model: an auditor with the data can recompute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite import workloads
from suite.worker import record

if TYPE_CHECKING:
    from suite.contract import Job
    from suite.worker.channel import Channel


def send_digests(job: Job, channel: Channel) -> None:
    """Open the data of ``job`` and send the digests of its first ``job.probe_steps`` batches."""
    channel.phase("batches")
    data = record.RecordingData(workloads.open_data(job))
    for step in range(job.probe_steps):
        data.batch(step)
    channel.send("batches", digests=[data.digest(step) for step in range(job.probe_steps)])
