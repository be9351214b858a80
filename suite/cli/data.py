"""``python -m suite data``: prepare, fetch or verify the dataset of a workload."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from suite import workloads
from suite.datasets import registry
from suite.datasets.errors import DatasetError, DatasetMissing
from suite.datasets.prepare import Prepared, lacking, prepare
from suite.datasets.registry import Entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--workload", required=True, help="whose dataset: " + ", ".join(workloads.names()))
    parser.add_argument(
        "--scale", choices=("reference", "mini"), default="reference", help="the published data or generated"
    )
    parser.add_argument(
        "--from", dest="copy", type=Path, metavar="PATH", help="take this copy (zip, file or folder)"
    )
    parser.add_argument(
        "--own", action="store_true", help="the copy holds images of your own, for runs in division open"
    )
    parser.add_argument("--verify", action="store_true", help="only compute and compare all checksums")
    parser.add_argument(
        "--data-root", type=Path, default=Path("data"), metavar="DIR", help="where datasets are kept"
    )


def main(arguments: argparse.Namespace) -> int:
    """0 when the dataset is there and verified, else the exit code of what failed."""
    known = workloads.names()
    if arguments.workload not in known:
        close = difflib.get_close_matches(arguments.workload, known, 1)
        hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
        print(f"error: no workload {arguments.workload!r}. {hint}", file=sys.stderr)
        return 10
    if arguments.own and (arguments.copy is None or arguments.scale == "mini"):
        print("error: --own: expected --from with a folder of images, at reference scale", file=sys.stderr)
        return 10
    try:
        entry = registry.entry(workloads.specification(arguments.workload).DATASETS[arguments.scale])
        prepared = _prepare(entry, arguments)
        start = _start(entry, prepared)
    except DatasetError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{prepared.name}: {prepared.bytes} bytes in {prepared.path}, digest {prepared.digest}")
    if start:
        print(start)
    return 0


def _start(entry: Entry, prepared: Prepared) -> str | None:
    """What quality runs start from, or that it is missing; None where it is the frozen stream."""
    if entry.weights is None:
        return None
    if lacks := lacking(entry, prepared.path):
        return lacks
    from suite.datasets.coco_weights import start_digest

    return f"quality runs start from {entry.weights.name}: parameters of digest {start_digest(prepared.path)}"


def _prepare(entry: Entry, arguments: argparse.Namespace) -> Prepared:
    meter = Meter()
    root = arguments.data_root.resolve()
    if arguments.verify or entry.kind == "mini":
        return prepare(entry.name, root, meter, arguments.verify)
    from suite.datasets.fetch import fetch

    if arguments.own and entry.images is None:
        raise DatasetMissing(f"{entry.name}: expected a dataset of images for --own; it is none")
    print(f"{entry.name}: {entry.licence}")
    if entry.unpacked and not arguments.copy and not (root / entry.name).exists():
        from suite.datasets import coco

        print(*coco.describe(entry), sep="\n")
    if entry.recipe and not arguments.copy and not (root / entry.name).exists():
        from suite.datasets.wmt16 import describe

        print(*describe(entry.recipe), sep="\n")
    if entry.source and not arguments.copy and not (root / entry.name).exists():
        print(f"fetching {entry.source.url} ({entry.source.bytes / 1e6:.1f} MB)")
    if entry.pieces and not arguments.copy and not (root / entry.name).exists():
        print("fetching " + ", ".join(source.url for source in entry.pieces.values()))
    return fetch(entry, root, meter, arguments.copy, arguments.own)


class Meter:
    """Progress on one line of a terminal; where there is none, one line a task."""

    def __init__(self) -> None:
        self._task = ""
        self._percent = -1

    def __call__(self, task: str, done: int, total: int | None) -> None:
        """Show that ``done`` of ``total`` bytes of ``task`` are finished."""
        percent = 100 * done // total if total else 0
        if task != self._task and not sys.stderr.isatty():
            print(task, file=sys.stderr)
        elif sys.stderr.isatty() and (task, percent) != (self._task, self._percent):
            end = "\n" if percent == 100 else ""
            print(f"\r{task}: {percent} %", end=end, file=sys.stderr, flush=True)
        self._task, self._percent = task, percent
