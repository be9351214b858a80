"""``python -m suite quality``: train every pair to its target, from several seeds, and show a table.

Three seeds in PyTorch, one in the others, or as many as ``--seeds`` gives. Each is a ``suite run`` with
mode=quality; those with a result of equal settings, code and machine are not run again. Exit codes: 0 every
run reached its target or is N/A · 1 one did not, failed or was not run · 10, 15 as `suite run` ·
130 interrupted.
"""

from __future__ import annotations

import argparse

UNFINISHED, INTERRUPTED = 1, 130


def main(args: argparse.Namespace) -> int:
    """Plan, run and show; the exit code as above."""
    from suite.cli.matrix import matrix_axes, split_overrides
    from suite.plan.code import code_digest
    from suite.report import targets
    from suite.sweep import execution
    from suite.sweep.cells import filter_cells, quality_cells
    from suite.sweep.grid import with_axes
    from suite.sweep.planning import plan_cells, refuse_invalid

    paths, options = split_overrides(args.overrides, args.results_dir)
    filters = {name: [value for value in getattr(args, name).split(",") if value] for name in _FILTERS}
    axes = matrix_axes(options)
    cells = with_axes(filter_cells(quality_cells(args.seeds), **filters), axes)
    code = code_digest()
    planned = plan_cells(cells, args.results_dir, paths, code)
    refuse_invalid(planned, axes)
    execution.announce(planned)
    if args.dry:
        print(execution.listing(planned))
        return 0
    ran = execution.run_cells(planned, args.results_dir, code)
    rows = targets.quality_rows(ran.entries)
    write = {"text": targets.to_text, "md": targets.to_markdown, "json": targets.to_json}[args.format]
    print(write(rows), end="")
    if ran.interrupted:
        execution.print_progress("interrupted: the same command continues with the next run")
        return INTERRUPTED
    return 0 if all(row.done for row in rows) else UNFINISHED


_FILTERS = ("workload", "framework")
