"""Convert the whole dataset into the storage format, after the measured repeats."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from suite.datasets.converted import ConvertedDataset
from suite.datasets.errors import DatasetCorrupt
from suite.datasets.prepare import PreparedDataset
from suite.harness.progress import Progress
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.plan.errors import BadConfiguration
from suite.plan.plan import Plan
from suite.plan.prepared import Dataset, Resources
from suite.workloads.storage import SPLITS, layout, too_small

_SILENCE_S = 3600.0  # maximum time for one shard
_FIELDS = ("split", "in_split", "images", "bytes_in", "bytes_out", "pixels", "written", "before")


def check_size(plan: Plan, dataset: Dataset) -> None:
    """BadConfiguration if ``dataset`` has too few images for the steps of a repeat."""
    if reason := too_small(_count_images(dataset.folder), plan.key.batch):
        raise BadConfiguration(f"batch: {reason}")


def convert(plan: Plan, resources: Resources, debug: Path, *, quiet: bool = False) -> Path:
    """Make the missing shards of the converted dataset; returns its folder.

    Finished shards of an interrupted conversion are verified and kept. Raises DatasetError, WorkerFailure.
    """
    dataset = resources.dataset
    progress = Progress(plan.repeats, quiet=quiet)
    storage_format = plan.settings.storage
    source = PreparedDataset(
        dataset.name, dataset.kind, dataset.folder, dataset.digest, {}, dataset.bytes, dataset.generator
    )
    conversion = ConvertedDataset(plan.settings.data_root, source, storage_format, plan.key.batch)
    shards = layout(_count_images(dataset.folder), plan.key.batch)
    if conversion.is_complete(shards):
        progress.write(f"{conversion.name}: all {len(shards)} shards exist and match their digests")
        return conversion.target
    with conversion.building() as folder:
        found = _run_worker(plan, resources, folder, debug, progress, conversion.name)
        if missing := next((shard for shard in shards if (shard.split, shard.number) not in found), None):
            raise WorkerFailure(
                "protocol", "convert", f"the worker did not make {missing.name(storage_format)}"
            )
        conversion.finish([(shard, found[shard.split, shard.number]) for shard in shards])
    return conversion.target


def _run_worker(
    plan: Plan, resources: Resources, folder: Path, debug: Path, progress: Progress, name: str
) -> dict[tuple[str, int], dict[str, Any]]:
    """Run one worker until all shards are finished; returns its ``shard`` events by split and number."""
    workers, number = resources.workers, plan.repeats  # after those of the repeats, in names of containers
    job = {**resources.job(plan, number, 0, folder), "soak_ns": 0, "whole": True}
    command = resources.command(number, folder)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    meter = _ShardProgress(progress, name)
    debug.parent.mkdir(parents=True, exist_ok=True)
    try:
        with WorkerProcess(
            command, debug, lambda: workers.ended(number), lambda: workers.remove(number)
        ) as worker:
            worker.configure(job)
            worker.expect("hello", _SILENCE_S)
            meter.start()
            while (event := worker.receive(_SILENCE_S)[0])["event"] != "done":
                if event["event"] == "phase":
                    continue
                if event["event"] != "shard" or any(field not in event for field in _FIELDS):
                    raise WorkerFailure("protocol", worker.phase, f"expected a shard, found {event['event']}")
                found[event["split"], event["in_split"]] = event
                meter.finished(event)
    finally:
        if debug.exists() and debug.stat().st_size == 0:
            debug.unlink()
        with suppress(OSError):  # it holds other debug files
            debug.parent.rmdir()
    return found


class _ShardProgress:
    """Progress of a conversion: a line for each tenth of its shards, with the mean speed so far."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name
        self._started = 0.0
        self._tenths = self._images = self._existing = 0

    def start(self) -> None:
        """Start the clock: the worker is ready."""
        self._started = monotonic()

    def finished(self, shard: dict[str, Any]) -> None:
        """Count one finished shard; print a line if another tenth is complete."""
        self._existing += bool(shard["before"])
        self._images += 0 if shard["before"] else shard["images"]
        tenths = 10 * shard["number"] // shard["of"]
        if tenths > self._tenths:
            self._tenths = tenths
            speed = self._images / max(monotonic() - self._started, 1e-9)
            existing = f", {self._existing} existed before" if self._existing else ""
            self._progress.write(
                f"{self._name}: {shard['number']}/{shard['of']} shards{existing}, {speed:,.0f} images/s"
            )


def _count_images(folder: Path) -> dict[str, int]:
    """The number of images of each split in ``folder``; DatasetCorrupt if a split is empty."""
    found = {}
    for split in SPLITS:
        with (folder / f"{split}.txt").open("rb") as stream:
            found[split] = sum(1 for _ in stream)
        if not found[split]:
            raise DatasetCorrupt(str(folder / f"{split}.txt"), "images", "an empty list", "Prepare it again.")
    return found
