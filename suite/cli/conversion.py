"""Convert the whole dataset, after the measurement or without one."""

from __future__ import annotations

import sys
from pathlib import Path

from suite.harness.conversion import Converted, convert
from suite.plan.plan import Plan
from suite.plan.prepared import Resources
from suite.telemetry.storage import storage_facts


def finish(plan: Plan, resources: Resources) -> int:
    """Convert the dataset of ``plan`` and print its folder; returns 0 or the exit code of the failure."""
    from suite.datasets.errors import DatasetError
    from suite.harness.run import EXIT_CODES
    from suite.harness.worker_process import WorkerFailure

    debug = plan.settings.results_dir / f"{plan.run_id}.debug" / "conversion.log"
    try:
        done = convert(plan, resources, debug)
    except WorkerFailure as failure:
        print(
            f"error: {failure.code} in the conversion, phase {failure.phase}: {failure.message}",
            file=sys.stderr,
        )
        return EXIT_CODES[failure.code]
    except DatasetError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"converted: {done.folder}")
    print(_summary(plan, done, resources.dataset.folder))
    return 0


def _summary(plan: Plan, done: Converted, source: Path) -> str:
    """Bytes before and after, seconds of the whole dataset, and the disks."""
    storage, _ = storage_facts({"from": source, "to": done.folder})
    took = f"{done.seconds:,.1f} s" if done.seconds else f"null ({done.reason})"
    disks = ", ".join(
        f"{name} {one['filesystem'] or 'an unknown file system'} on {one['disk'] or 'a disk without a name'}"
        for name, one in storage.items()
    )
    return (
        f"whole dataset: {done.images:,} images, {done.bytes_in / 1e6:,.1f} MB before, "
        f"{done.bytes_out / 1e6:,.1f} MB after ({done.bytes_out / done.bytes_in:.3f} times) as "
        f"{plan.settings.storage}{'' if plan.settings.encoding == 'file' else ' ' + plan.settings.encoding}; "
        f"{took}, {plan.key.cache} cache, {plan.threads} threads; {disks}"
    )
