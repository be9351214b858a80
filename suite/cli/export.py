"""``python -m suite export``: an accepted result as MLPerf's :::MLLOG lines, one file per repeat.

The files go to results/mllog/<run id> or --out; ``--out -`` prints the lines. It is no submission to MLPerf
(docs/mllog.md). Exit codes: 0; 1 for a result that is rejected or has no score; 2 for usage or an internal
error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite.cli.check import ACCEPTED, REJECTED
from suite.cli.guard import UsageError

_FOLDER = Path("results/mllog")
_PRINTED = Path("-")


def main(args: argparse.Namespace) -> int:
    """Judge the result in the sandbox, then write or print its log lines."""
    from suite.cli.archives import result_problem
    from suite.log.files import folder_of
    from suite.log.safe import safe
    from suite.mllog.verify import MLLOG_TASKS
    from suite.sandbox.sandbox import LimitsError, Sandbox

    if (problem := result_problem(args.result)) is not None:
        raise UsageError(f"expected a result's folder, found {problem}")
    result = folder_of(args.result).resolve()
    out = args.out or _FOLDER / result.name
    if out != _PRINTED and out.resolve().is_relative_to(result):
        raise UsageError("--out: expected a folder outside of the result, which is never changed")
    try:
        with Sandbox(MLLOG_TASKS) as sandbox:
            value = sandbox.run("export", path=args.result)
    except LimitsError as error:
        print(f"export: rejected: {safe(error)}", file=sys.stderr)
        return REJECTED
    if value["mllog"] is None:
        why = safe(value["why_not"], 1000)
        if not value.get("withdrawn"):
            why += f": `python -m suite check {safe(args.result)}` shows why"
        print(f"export: expected an accepted result with a score; {why}", file=sys.stderr)
        return REJECTED
    texts = ["".join(f"{line}\n" for line in lines) for lines in value["mllog"]]
    if out == _PRINTED:
        sys.stdout.write("".join(texts))
        return ACCEPTED
    return _write(out, texts)


def _write(folder: Path, texts: list[str]) -> int:
    """Write one file per repeat; existing files are not replaced."""
    from suite.log.safe import safe

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if existing := sorted(folder.glob("result_*")):
            found = f"found {safe(existing[0], 1000)}"
            raise UsageError(f"--out: expected a folder without logs, {found}; name another, or remove it")
        for index, text in enumerate(texts):
            with (folder / f"result_{index}.txt").open("x", encoding="ascii") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"--out: {error.strerror}: {safe(error.filename)}") from error
    print(f"written: {safe(folder / 'result_0.txt', 1000)} to result_{len(texts) - 1}.txt")
    return ACCEPTED
