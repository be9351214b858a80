"""Preprocessing in the worker: shards as the steps of a repeat, and afterwards all of the conversion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.workloads.contract import WARMUP_STEPS

if TYPE_CHECKING:
    from suite.worker.channel import Channel
    from suite.workloads.contract import Job


class NoBatches:
    """Stands where a pair's data do: the steps of a conversion read by themselves."""

    steps_per_epoch = 0
    wait_ns = 0  # not what is reported, which is null

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def forget(self) -> None:
        """Nothing is kept."""


def step_columns(pair: Any) -> dict[str, Any]:
    """What the log has of each step beside its marks: pixels and files as digests, bytes."""
    done = pair.finished()
    return {
        "losses": None,
        "gradient_norms": None,
        "outputs": [shard.written for shard in done],
        "batches": [shard.pixels for shard in done],
        "bytes_in": [shard.bytes_in for shard in done],
        "bytes_out": [shard.bytes_out for shard in done],
    }


def repeat_fields(pair: Any) -> dict[str, Any]:
    """What a conversion says of a repeat otherwise than a model does."""
    measured = pair.finished()[WARMUP_STEPS:]
    return {
        **dict.fromkeys(("initial", "step_10", "final", "input_wait_ns")),
        "conversion": {
            "bytes_in": sum(shard.bytes_in for shard in measured),
            "bytes_out": sum(shard.bytes_out for shard in measured),
        },
    }


def convert_all(job: Job, channel: Channel, framework: Any, pairs: Any) -> None:
    """Make every shard that is not there yet, and tell of each."""
    from suite.workloads._conversion.completion import complete  # here: it brings the decoder of pictures

    channel.phase("convert")
    pair = pairs.Pair(job, framework)
    finished: Iterator[Any] = complete(pair, Path(job.scratch_dir))
    for number, (shard, done, before) in enumerate(finished, 1):
        channel.send(
            "shard",
            number=number,
            of=len(pair.shards),
            split=shard.split,
            place=shard.number,
            before=before,
            **asdict(done),
        )
