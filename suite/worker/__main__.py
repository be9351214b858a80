"""``python -m suite.worker``: reads its configuration from stdin; see :mod:`suite.worker.channel`."""

from __future__ import annotations

import os
import sys

if "SUITE_PACKAGES" in os.environ:
    # Last, so that the framework's own packages win; before the framework is imported, because it may import
    # the namespace package `nvidia`, which DALI's replaces.
    sys.path.append(os.environ["SUITE_PACKAGES"])

from suite.contract import ConversionJob, Job
from suite.worker.channel import Channel
from suite.worker.conversion import run_conversion
from suite.worker.load import run_load
from suite.worker.main import main, run_benchmark


def _repeat(job: Job | ConversionJob, channel: Channel, started: int) -> None:
    if isinstance(job, ConversionJob):
        run_conversion(job, channel, started)
    elif job.key.loads:
        run_load(job, channel, started)
    else:
        run_benchmark(job, channel, started)


raise SystemExit(main(_repeat))
