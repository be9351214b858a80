"""``python -m suite data``: prepare, fetch or verify the dataset of a workload.

Exit codes are those of ``run``: 0 the dataset is prepared and verified, 10 a bad option, 12 missing or
corrupt, 15 no disk space.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite import workloads
from suite.datasets import catalogue
from suite.datasets.catalogue import CatalogueEntry
from suite.datasets.errors import DatasetMissing
from suite.datasets.prepare import PreparedDataset, missing_weights, prepare
from suite.plan.errors import BadConfiguration


def main(arguments: argparse.Namespace) -> int:
    """Prepare the dataset and print its digest; returns 0."""
    copy: Path | None = vars(arguments)["from"]
    if arguments.custom and (copy is None or arguments.scale == "mini"):
        raise BadConfiguration("--custom: expected --from with a folder of images, at reference scale")
    entry = catalogue.entry(workloads.specification(arguments.workload).DATASETS[arguments.scale])
    meter = ByteProgress()
    try:
        prepared = _prepare(entry, arguments, copy, meter)
    finally:
        meter.close()
    start = _initial_weights(entry, prepared)
    print(f"{prepared.name}: {prepared.bytes} bytes in {prepared.path}, digest {prepared.digest}")
    if start:
        print(start)
    return 0


def _initial_weights(entry: CatalogueEntry, prepared: PreparedDataset) -> str | None:
    """A line about the initial weights of quality runs; None if they are the frozen stream's."""
    if entry.weights is None:
        return None
    if lacks := missing_weights(entry, prepared.path):
        return lacks
    from suite.datasets.coco_weights import start_digest

    return f"quality runs start from {entry.weights.name}: parameters of digest {start_digest(prepared.path)}"


def _prepare(
    entry: CatalogueEntry, arguments: argparse.Namespace, copy: Path | None, meter: ByteProgress
) -> PreparedDataset:
    root = arguments.data_root.resolve()
    if arguments.verify or entry.kind == "mini":
        if copy is not None:
            why = "--verify checks what is there" if arguments.verify else "the dataset of mini is generated"
            raise DatasetMissing(f"{entry.name}: --from: {why}; leave it out")
        return prepare(entry.name, root, meter, arguments.verify)
    from suite.datasets.fetch import fetch

    if arguments.custom and entry.images is None:
        raise DatasetMissing(f"{entry.name}: --custom expects a dataset of images, found another")
    print(f"{entry.name}: {entry.licence}")
    if entry.unpacked and not copy and not (root / entry.name).exists():
        from suite.datasets import coco

        print(*coco.describe(entry), sep="\n")
    if entry.recipe and not copy and not (root / entry.name).exists():
        from suite.datasets.wmt16 import describe

        print(*describe(entry.recipe), sep="\n")
    if entry.source and not copy and not (root / entry.name).exists():
        print(f"fetching {entry.source.url} ({entry.source.bytes / 1e6:.1f} MB)")
    if entry.pieces and not copy and not (root / entry.name).exists():
        print("fetching " + ", ".join(source.url for source in entry.pieces.values()))
    return fetch(entry, root, meter, copy, arguments.custom)


class ByteProgress:
    """Progress on one line of a terminal; without a terminal, one line per task."""

    def __init__(self) -> None:
        self._task = ""
        self._percent = -1
        self._open = False

    def __call__(self, task: str, done: int, total: int | None) -> None:
        """Show that ``done`` of ``total`` bytes of ``task`` are finished."""
        percent = 100 * done // total if total else 0
        if task != self._task and not sys.stderr.isatty():
            print(task, file=sys.stderr)
        elif sys.stderr.isatty() and (task, percent) != (self._task, self._percent):
            self._open = percent != 100
            print(f"\r{task}: {percent} %", end="" if self._open else "\n", file=sys.stderr, flush=True)
        self._task, self._percent = task, percent

    def close(self) -> None:
        """End an unfinished line."""
        if self._open:
            print(file=sys.stderr)
        self._open = False
