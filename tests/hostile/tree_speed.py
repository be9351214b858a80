"""How the time to judge a tree of submissions grows: ``python -m tests.hostile.tree_speed``.

``--results 1000 3000`` writes trees of so many results of one benchmark key, made from the submitted training
of ``resnet50``: other dates, device, losses and outputs, and the step durations in another order. Printed are
the processor seconds of the logs and of their comparison with each other, and how much more the larger tree
took. A result takes 0.4 MB in the temporary folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from suite.submissions import package
from suite.submissions.registry import read_registry
from tests.fixtures import consistent, honest
from tests.fixtures.forging import chained

WORK = "resnet50 train"


def write_tree(root: Path, results: int) -> None:
    """Write ``results`` submissions of one key, and the registry, below ``root``."""
    log = next(honest.SUBMISSIONS.glob("suite-reference/results/*/resnet50/*-pytorch-train-*/run.jsonl"))
    shutil.copytree(honest.SUBMISSIONS / "registry", root / "registry")
    for number in range(results):
        events = consistent.reference_events(WORK)
        consistent.as_own_run(events, f"{number}")
        folder = root / Path(*log.parts[-6:-2]) / events[0]["data"]["run_id"]
        shutil.copytree(log.parent, folder)
        (folder / log.name).write_bytes(chained(events))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.tree_speed")
    parser.add_argument("--results", type=int, nargs="+", default=[1000, 3000])
    before = None
    for results in parser.parse_args(argv).results:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name, "submissions")
            write_tree(root, results)
            registry, folders = read_registry(root / "registry"), sorted(root.glob("*/*/*/*/*/"))
            started, wall = time.process_time(), time.perf_counter()
            entries = [package.check_entry(folder, root, registry) for folder in folders]
            logs = time.process_time() - started
            entries, about = package.compared_with_each_other(entries, registry, root)
            compared = time.process_time() - started - logs
            wall = time.perf_counter() - wall
        accepted = sum(one.assurance is not None for one in entries)
        print(
            f"{results} results, {accepted} accepted, {len(about)} findings between them: logs {logs:.1f} s, "
            f"comparison {compared:.1f} s of processor time, {wall:.1f} s of wall time in one process"
        )
        if before is not None:
            few, *seconds = before
            logs_grew, compared_grew = (
                now / then for now, then in zip((logs, compared), seconds, strict=True)
            )
            print(f"of {results / few:.2f} times: logs {logs_grew:.2f}, comparison {compared_grew:.2f} times")
        before = results, logs, compared
    return 0


if __name__ == "__main__":
    sys.exit(main())
