"""``python -m suite export``: an accepted result in another format: MLPerf's log lines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite.cli.check import ACCEPTED, INTERNAL, REJECTED

_FAULT = 1000  # characters of a fault of the checker that are told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Write an accepted result in another format. mllog: MLPerf's :::MLLOG lines, one file a repeat. It "
        "is no submission to MLPerf (docs/mllog.md). Exit codes: 0; 1 for a result that is rejected or has "
        "no score; 2 for usage or an internal error."
    )
    parser.add_argument("result", type=Path, metavar="RESULT", help="the result's folder")
    parser.add_argument("--format", choices=("mllog",), required=True)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write result_0.txt … there (default: print them, repeat by repeat)",
    )


def main(args: argparse.Namespace) -> int:
    """Judge in a child, then print or write."""
    from suite.audit.examine import folder_of
    from suite.judge.archive import advice
    from suite.judge.parent import Judge, JudgeError, LimitsError
    from suite.record.safe import safe

    told = None if args.result.exists() else f"nothing at {safe(args.result)}"
    told = told or advice(args.result)
    if told is not None:
        return _refuse(f"expected a result's folder, found {told}")
    if args.out is not None and args.out.resolve().is_relative_to(folder_of(args.result).resolve()):
        return _refuse("--out: expected a folder outside of the result, which is never changed")
    try:
        with Judge() as judge:
            value = judge.ask({"ask": "export", "path": str(args.result.absolute())})
    except LimitsError as error:
        print(f"export: rejected: {safe(error)}", file=sys.stderr)
        return REJECTED
    except JudgeError as error:
        return _refuse(safe(error, _FAULT))
    if value["mllog"] is None:
        why = f"{value['why_not']}: `python -m suite check {safe(args.result)}` tells why"
        print(f"export: expected an accepted result with a score; {why}", file=sys.stderr)
        return REJECTED
    texts = ["".join(f"{line}\n" for line in lines) for lines in value["mllog"]]
    if args.out is None:
        sys.stdout.write("".join(texts))
        return ACCEPTED
    return _write(args.out, texts)


def _write(folder: Path, texts: list[str]) -> int:
    """One file a repeat; nothing that is there already is replaced."""
    from suite.record.safe import safe

    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(folder.glob("result_*"))
        if there:
            return _refuse(f"--out: expected a folder without logs, found {safe(there[0])}")
        for index, text in enumerate(texts):
            with (folder / f"result_{index}.txt").open("x", encoding="ascii") as file:
                file.write(text)
    except OSError as error:
        return _refuse(f"--out: {error.strerror}: {safe(error.filename)}")
    print(f"written: {folder / 'result_0.txt'} to result_{len(texts) - 1}.txt")
    return ACCEPTED


def _refuse(why: str) -> int:
    print(f"export: {why}", file=sys.stderr)
    return INTERNAL
