"""Convert the whole dataset into the storage format, after the measured repeats."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from suite.datasets.converted import ConvertedDataset
from suite.datasets.errors import DatasetCorrupt
from suite.datasets.evict import evict
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


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted dataset. ``seconds`` is None, with a ``reason``, unless one command made all shards."""

    folder: Path
    images: int
    bytes_in: int
    bytes_out: int
    seconds: float | None
    reason: str = ""


def convert(plan: Plan, resources: Resources, debug: Path) -> Converted:
    """Make the missing shards of the converted dataset.

    The time of all shards begins when the worker is ready and ends when the last file is on the disk; with a
    cold cache the source is evicted before.

    Finished shards of an interrupted conversion are verified and kept. Raises DatasetError, WorkerFailure.
    """
    dataset = resources.dataset
    progress = Progress(plan.repeats)
    storage_format = plan.settings.storage
    source = PreparedDataset(
        dataset.name, dataset.kind, dataset.folder, dataset.digest, {}, dataset.bytes, dataset.generator
    )
    conversion = ConvertedDataset(
        plan.settings.data_root, source, storage_format, plan.key.batch, plan.settings.encoding
    )
    shards = layout(_count_images(dataset.folder), plan.key.batch)
    if conversion.is_complete(shards):
        progress.write(f"{conversion.name}: all {len(shards)} shards exist and match their digests")
        return _finished(conversion)
    with conversion.building(sum(shard.count for shard in shards)) as folder:
        if plan.key.cache == "cold":
            evict(dataset.paths)
        meter = _ShardProgress(progress, conversion.name)
        found = _run_worker(plan, resources, folder, debug, meter)
        if missing := next((shard for shard in shards if (shard.split, shard.number) not in found), None):
            raise WorkerFailure(
                "protocol", "convert", f"the worker did not make {missing.name(storage_format)}"
            )
        rows = [(shard, found[shard.split, shard.number]) for shard in shards]
        conversion.finish(rows, meter.seconds, meter.why_no_seconds)
    return _finished(conversion)


def _finished(conversion: ConvertedDataset) -> Converted:
    """The facts in the manifest of a finished conversion."""
    manifest = conversion.manifest()
    rows = manifest["shards"].values()
    images, read, written = (sum(row[name] for row in rows) for name in ("images", "bytes_in", "bytes_out"))
    seconds = manifest.get("seconds")
    reason = manifest.get("reason") or ("" if seconds else "its manifest has no time")
    return Converted(conversion.target, images, read, written, seconds, reason)


def _run_worker(
    plan: Plan, resources: Resources, folder: Path, debug: Path, meter: _ShardProgress
) -> dict[tuple[str, int], dict[str, Any]]:
    """Run one worker until all shards are finished; returns its ``shard`` events by split and number."""
    workers, number = resources.workers, plan.repeats  # after those of the repeats, in names of containers
    job = {**resources.job(plan, number, 0, folder), "soak_ns": 0, "whole": True}
    command = resources.command(number, folder)
    found: dict[tuple[str, int], dict[str, Any]] = {}
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
        self.seconds: float | None = None

    @property
    def why_no_seconds(self) -> str:
        """Why there is no time of the whole dataset."""
        return f"{self._existing} shards are of an interrupted attempt" if self._existing else ""

    def start(self) -> None:
        """Start the clock: the worker is ready."""
        self._started = monotonic()

    def finished(self, shard: dict[str, Any]) -> None:
        """Count one finished shard; print a line if another tenth is complete."""
        self._existing += bool(shard["before"])
        self._images += 0 if shard["before"] else shard["images"]
        if shard["number"] == shard["of"] and not self._existing:
            self.seconds = monotonic() - self._started
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
