"""``python -m suite verify-quote``: find the log of a published sentence and make the sentence anew."""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from suite.cli.audit import SUBMISSIONS, UsageError, judged_at

_FAULT = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Find the log that a sentence names by its SHA-256, make the sentence anew, and say what differs."
    )
    parser.add_argument("sentence", metavar="SENTENCE", help="as `quote` printed it, in single quotes")
    parser.add_argument(
        "--in", dest="places", type=Path, action="append", metavar="DIR",
        help="where the log may lie; may be given again (default: the tree of --submissions)",
    )  # fmt: skip
    parser.add_argument(
        "--submissions", type=Path, default=SUBMISSIONS, metavar="DIR",
        help="the tree with the registry, and the results to compare with (default: submissions)",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """0 where the sentence is the derived one, 1 where it is not, 2 where no log with its digest is found."""
    from suite.audit import quote
    from suite.judge.parent import JudgeError
    from suite.record.safe import safe

    digest = quote.digest_in(args.sentence)
    if digest is None:
        print(
            "verify-quote: expected a sentence with one SHA-256 of a log, found none or several",
            file=sys.stderr,
        )
        return 2
    places = args.places or [args.submissions]
    found = next(found_in(places, digest), None)
    if found is None:
        where = ", ".join(safe(place) for place in places)
        print(
            f"verify-quote: no run.jsonl with SHA-256 {digest} under {where}; --in says where",
            file=sys.stderr,
        )
        return 2
    try:
        value = judged_at(found, args.submissions)
    except (UsageError, JudgeError) as error:
        print(f"verify-quote: {safe(error, _FAULT)}", file=sys.stderr)
        return 2
    print(f"log: {safe(found, 300)}")
    if value["quote"] is None:
        print(f"differs: there is no sentence of this result: {safe(value['why_no_quote'], 240)}")
        return 1
    derived = quote.sentence(value["quote"])
    if args.sentence == derived:
        print("holds: the sentence is the one that follows from the log")
        return 0
    for name, wanted, told in told_differences(args.sentence, value["quote"]):
        print(f"differs: {name}: expected {safe(wanted, 240)}, found {safe(told, 240)}")
    print(f"derived: {derived}")
    return 1


def told_differences(text: str, derived: dict[str, str]) -> list[tuple[str, str, str]]:
    """(field, expected, found) of a sentence that is not the derived one; its words where it is none."""
    from suite.audit import quote

    try:
        return quote.differences(quote.parse(text), derived)
    except quote.QuoteError as error:
        return [("words", str(error).removeprefix("expected ").partition(",")[0], text)]


def found_in(places: Iterable[Path], digest: str) -> Iterator[Path]:
    """The folders below ``places`` whose run.jsonl has this SHA-256; no link is followed."""
    from suite.record.canonical import MAX_FILE
    from suite.record.files import LOG

    for place in places:
        for folder, inner, files in os.walk(place):
            inner.sort()
            path = Path(folder, LOG)
            if LOG in files and stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size <= MAX_FILE:
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                        yield Path(folder)
