"""``python -m suite verify-quote``: find the log of a published sentence, by its SHA-256, and compare.

The sentence is made anew from that log. Exit codes: 0 it is the derived one, 1 it is not, 2 no log with its
digest is found.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from suite.cli.audit import judged_at
from suite.cli.guard import UsageError


def main(args: argparse.Namespace) -> int:
    """0 where the sentence is the derived one, 1 where it is not, 2 where no log with its digest is found."""
    from suite.audit import quote
    from suite.log.safe import safe

    digest = quote.digest_in(args.sentence)
    if digest is None:
        raise UsageError("expected a sentence with one SHA-256 of a log, found none or several")
    places = vars(args)["in"] or [args.submissions]
    found = next(found_in(places, digest), None)
    if found is None:
        where = ", ".join(safe(place) for place in places)
        raise UsageError(f"no run.jsonl with SHA-256 {digest} under {where}; --in names the folder")
    value = judged_at(found, args.submissions)
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
    from suite.log.canonical import MAX_FILE
    from suite.log.files import LOG

    for place in places:
        for folder, inner, files in os.walk(place):
            inner.sort()
            path = Path(folder, LOG)
            if LOG in files and stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size <= MAX_FILE:
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                        yield Path(folder)
