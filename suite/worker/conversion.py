"""A conversion in the worker: shards as the steps of a repeat, or all shards of the dataset, not measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from time import monotonic_ns
from typing import Any

from suite import workloads
from suite.contract import WARMUP_STEPS, ConversionJob
from suite.worker import record
from suite.worker.channel import PROTOCOL, Channel
from suite.worker.main import Bench, measure, prepare


class NoBatches:
    """Stands where a pair's data do: the steps of a conversion read by themselves."""

    steps_per_epoch = 0
    wait_ns = 0  # not what is reported, which is null

    def slot(self, step: int) -> None:
        """None: nothing is staged."""
        del step

    def forget(self) -> None:
        """Nothing is kept."""


class ConversionBench(Bench):
    """The parts of one repeat of a conversion: ``pair`` is the writer of its shards."""

    def columns(self, results: list[Any]) -> dict[str, Any]:
        """Of each shard its pixels and files as digests, and its bytes."""
        del results  # the digests of the files once more
        return step_columns(self.pair)

    def closing_fields(self) -> dict[str, Any]:
        """The bytes of the measured shards, which are removed."""
        found = repeat_fields(self.pair)
        self.pair.close()
        return found


def run_conversion(job: ConversionJob, channel: Channel, started: int) -> None:
    """Run one repeat of a conversion, or make every shard that is not there yet.

    ``started`` is the time (CLOCK_MONOTONIC, ns) at which the worker began.
    """
    channel.phase("import")
    benchmark = job.framework_job
    framework_module = workloads.framework_module(benchmark)
    writers = workloads.conversion_module(job.key.framework)
    framework = framework_module.Framework(benchmark)
    import_ns = monotonic_ns() - started
    facts, reasons = record.facts(framework.describe(), workloads.conversion_decoder())
    channel.send("hello", protocol=PROTOCOL, facts=facts, reasons=reasons)
    if job.whole:
        _convert_all(job, channel, writers)
        return
    channel.phase("setup")
    setup_from = monotonic_ns()
    bench = ConversionBench(benchmark, channel, framework, writers.Writer(job), NoBatches())
    measure(bench, prepare(bench, import_ns, setup_from))


def step_columns(writer: Any) -> dict[str, Any]:
    """What the log has of each step beside its timestamps: pixels and files as digests, bytes."""
    done = writer.finished()
    return {
        "losses": None,
        "gradient_norms": None,
        "outputs": [shard.written for shard in done],
        "batches": [shard.pixels for shard in done],
        "bytes_in": [shard.bytes_in for shard in done],
        "bytes_out": [shard.bytes_out for shard in done],
    }


def repeat_fields(writer: Any) -> dict[str, Any]:
    """What a conversion reports of a repeat otherwise than a model does."""
    measured = writer.finished()[WARMUP_STEPS:]
    return {
        **dict.fromkeys(("initial", "step_10", "final", "input_wait_ns")),
        "conversion": {
            "bytes_in": sum(shard.bytes_in for shard in measured),
            "bytes_out": sum(shard.bytes_out for shard in measured),
        },
    }


def _convert_all(job: ConversionJob, channel: Channel, writers: Any) -> None:
    """Make every shard that is not there yet, and report each."""
    from suite.workloads._conversion.completion import complete  # here: it brings the decoder of images

    channel.phase("convert")
    writer = writers.Writer(job)
    for number, (shard, done, before) in enumerate(complete(writer, Path(job.scratch_dir)), 1):
        channel.send(
            "shard",
            number=number,
            of=len(writer.shards),
            split=shard.split,
            place=shard.number,
            before=before,
            **asdict(done),
        )
