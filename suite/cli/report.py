"""``python -m suite report``: one result, or a table of a folder of results, as one HTML file.

The file needs no other file, no network and no JavaScript. Exit codes: 0; 2 there is no result, or a file
that is no report would be overwritten; 15 the file cannot be written.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from suite.cli.guard import UsageError


def main(args: argparse.Namespace) -> int:
    """Write the report; the exit code as above."""
    from suite.cli.archives import problem_of, refuse_result
    from suite.cli.audit import require_submissions
    from suite.site.cache import Cache, write
    from suite.site.report import report_of_folder, report_of_result

    cache = Cache(args.cache_dir / "site")
    if args.result is not None:
        if (problem := problem_of(args.result)) is not None:
            raise UsageError(f"expected a result's folder, found {problem}")
        require_submissions(args.submissions)
        result, page = report_of_result(args.result.absolute(), args.submissions.absolute(), cache)
        name = f"{result.digest[:16]}.html"
    else:
        if not args.results_dir.is_dir():
            raise UsageError(f"--results-dir: no such folder: {args.results_dir}")
        refuse_result(args.results_dir)
        require_submissions(args.submissions)
        results, page = report_of_folder(args.results_dir.absolute(), args.submissions.absolute(), cache)
        if not results:
            raise UsageError(f"no result in {args.results_dir}/ yet: make run WORKLOAD=ncf FRAMEWORK=pytorch")
        name = "results.html"
    out = args.out or args.results_dir / "reports" / name
    _refuse_others(out)
    write(out, page.encode())
    print(f"report: {out}")
    return 0


def _refuse_others(path: Path) -> None:
    """UsageError if ``path`` is a file that is no report of this suite."""
    from suite.site.shell import GENERATOR

    if not path.exists():
        return
    with path.open("rb") as file:
        start = file.read(4096) if path.is_file() else b""
    if f'content="{GENERATOR}"'.encode() not in start:
        raise UsageError(f"{path} exists and is no report; give another OUT=")
