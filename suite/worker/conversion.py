"""A conversion in the worker: shards as the steps of a repeat, or all shards of the dataset, untimed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from time import monotonic_ns
from typing import Any, ClassVar

from suite import workloads
from suite.contract import WARMUP_STEPS, ConversionJob
from suite.worker import record
from suite.worker.channel import PROTOCOL, Channel
from suite.worker.main import WITHOUT_MODEL, Bench, measure, prepare


class NoBatches:
    """Data without batches: the steps of a conversion read their files themselves."""

    steps_per_epoch = 0
    wait_ns = 0  # the report has null

    def forget(self) -> None:
        """Do nothing: no batch is recorded."""


class ConversionBench(Bench):
    """One repeat of a conversion; ``pair`` is the writer of the shards."""

    cold_batches: ClassVar[int] = WARMUP_STEPS  # shards that are written at once must differ

    def steps_to_compile(self) -> list[int]:
        """One step: a conversion computes no model."""
        return [0]

    def columns(self, results: list[Any]) -> dict[str, Any]:
        """The digests of the pixels and the file of each shard, and its bytes."""
        del results  # they repeat the digests of the files
        return step_columns(self.pair)

    def closing_fields(self) -> dict[str, Any]:
        """The fields of a repeat that need a model: null. Removes the files of the shards."""
        self.pair.close()
        return dict.fromkeys(WITHOUT_MODEL)


def run_conversion(job: ConversionJob, channel: Channel, started: int) -> None:
    """Run one repeat of a conversion, or write every missing shard.

    ``started`` is the start of the worker (CLOCK_MONOTONIC, ns).
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
    """The fields of each step beside its timestamps: digests of pixels and files, and bytes."""
    done = writer.finished()
    return {
        "losses": None,
        "gradient_norms": None,
        "outputs": [shard.written for shard in done],
        "batches": [shard.pixels for shard in done],
        "bytes_in": [shard.bytes_in for shard in done],
        "bytes_out": [shard.bytes_out for shard in done],
    }


def _convert_all(job: ConversionJob, channel: Channel, writers: Any) -> None:
    """Write every missing shard, and send an event for each."""
    from suite.workloads._conversion.completion import complete  # late: imports the decoder of images

    channel.phase("convert")
    writer = writers.Writer(job)
    for number, (shard, done, before) in enumerate(complete(writer, Path(job.scratch_dir)), 1):
        channel.send(
            "shard",
            number=number,
            of=len(writer.shards),
            split=shard.split,
            in_split=shard.number,
            before=before,
            **asdict(done),
        )
