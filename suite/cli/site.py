"""``python -m suite site``: the results of a folder as a site of HTML files, which needs no server.

The site works from ``file://``, without JavaScript and without a network. Every score follows from a log that
the checker accepted; rejected results stay, struck through. Sweeps and matrices come from the folder's
journal.jsonl, machines from --baselines (BASELINES=DIR with make).

Exit codes: 0; 2 the folder does not exist, the target holds other files, or the checker failed for a result;
15 a file cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite.cli.guard import UsageError


def main(args: argparse.Namespace) -> int:
    """Build the site; the exit code as above."""
    import gc

    from suite.checker.verdict import without_collection
    from suite.compare.result_row import ERROR
    from suite.log.units import count
    from suite.site.build import SiteError, build

    source = getattr(args, "from")
    if not source.is_dir():
        raise UsageError(f"--from: expected a folder of results or submissions, found no folder {source}")
    if args.baselines != Path("baselines") and not args.baselines.is_dir():  # the default need not exist
        raise UsageError(f"--baselines: expected a folder of baselines, found no folder {args.baselines}")
    try:
        with without_collection():
            built = build(source.absolute(), args.to, args.cache_dir / "site", args.baselines)
            gc.freeze()  # the process ends soon: a search for garbage among a million strings finds none
    except SiteError as error:
        raise UsageError(str(error)) from error
    results = built.collection.results
    print(
        f"{count(len(results), 'result')} of {source}: {count(built.files, 'file')}, {built.written} written"
    )
    print(f"site: {args.to / 'index.html'}")
    failed = [result for result in results if result.row.status == ERROR]
    for result in failed:
        print(f"site: no verdict on {result.row.run_id}: {result.row.why}", file=sys.stderr)
    return 2 if failed else 0
