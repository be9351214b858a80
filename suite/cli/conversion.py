"""Convert the whole dataset, after the measurement or without one."""

from __future__ import annotations

import sys

from suite.harness.conversion import convert
from suite.plan.plan import Plan
from suite.plan.prepared import Resources


def finish(plan: Plan, resources: Resources) -> int:
    """Convert the dataset of ``plan`` and print its folder; returns 0 or the exit code of the failure."""
    from suite.datasets.errors import DatasetError
    from suite.harness.run import EXIT_CODES
    from suite.harness.worker_process import WorkerFailure

    debug = plan.settings.results_dir / f"{plan.run_id}.debug" / "conversion.log"
    try:
        folder = convert(plan, resources, debug)
    except WorkerFailure as failure:
        print(
            f"error: {failure.code} in the conversion, phase {failure.phase}: {failure.message}",
            file=sys.stderr,
        )
        return EXIT_CODES[failure.code]
    except DatasetError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"converted: {folder}")
    return 0
