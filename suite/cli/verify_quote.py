"""``python -m suite verify-quote``: find the log of a published sentence by its SHA-256, and compare.

The sentence is derived again from that log. Exit codes: 0 both are equal, 1 they differ, 2 no log with the
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
    """Compare the sentence with the derived one: 0 equal, 1 different. UsageError without the log."""
    from suite.audit import quote
    from suite.log.safe import safe

    digest = quote.digest_in(args.sentence)
    if digest is None:
        raise UsageError("expected a sentence with one SHA-256 of a log, found none or several")
    folders = vars(args)["in"] or [args.submissions]
    found = next(folders_with_log(folders, digest), None)
    if found is None:
        where = ", ".join(safe(folder) for folder in folders)
        raise UsageError(
            f"no run.jsonl with SHA-256 {digest} under {where}; --in DIR names its folder (make: IN=)"
        )
    value = judged_at(found, args.submissions)
    print(f"log: {safe(found, 300)}")
    if value["quote"] is None:
        print(f"differs: there is no sentence of this result: {safe(value['why_no_quote'], 1000)}")
        return 1
    derived = quote.sentence(value["quote"])
    if args.sentence == derived:
        print("holds: the sentence is the one that follows from the log")
        return 0
    for name, expected, actual in sentence_differences(args.sentence, value["quote"]):
        print(f"differs: {name}: expected {safe(expected, 240)}, found {safe(actual, 240)}")
    print(f"derived: {derived}")
    return 1


def sentence_differences(text: str, derived: dict[str, str]) -> list[tuple[str, str, str]]:
    """(field, expected, found) of a sentence that differs; the whole text if it cannot be parsed."""
    from suite.audit import quote

    try:
        return quote.differences(quote.parse(text), derived)
    except quote.QuoteError as error:
        return [("fields", str(error).removeprefix("expected ").partition(",")[0], text)]


def folders_with_log(roots: Iterable[Path], digest: str) -> Iterator[Path]:
    """The folders below ``roots`` whose run.jsonl has this SHA-256; no link is followed."""
    from suite.log.canonical import MAX_FILE
    from suite.log.files import LOG

    for root in roots:
        for folder, inner, files in os.walk(root):
            inner.sort()
            path = Path(folder, LOG)
            if LOG in files and stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size <= MAX_FILE:
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                        yield Path(folder)
