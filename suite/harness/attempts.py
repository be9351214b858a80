"""The ledger of attempts: from the first submission run of a benchmark on, every run of it is counted.

One line a run in ``attempts.jsonl`` beside the results. Keeping the best of many runs cannot be seen in the
numbers themselves, so the count is in the log, and a gap in it is for an auditor to ask about.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from suite.contract import ConversionKey, Key
from suite.log.canonical import encode, sha256_hex

LEDGER = "attempts.jsonl"


def next_attempt(folder: Path, key: Key | ConversionKey) -> int:
    """The number, from 1, that the next run of ``key`` has in the ledger of ``folder``. OSError."""
    if not (folder / LEDGER).exists():
        return 1
    with (folder / LEDGER).open("rb") as ledger:
        return 1 + _earlier(ledger, key)


def count_attempt(folder: Path, key: Key | ConversionKey, purpose: str, run_id: str) -> int:
    """Count this run of ``key`` in the ledger of ``folder``; returns its number, from 1.

    A trial before any submission run is number 1 and is not written. OSError if the ledger cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if purpose != "submission" and not (folder / LEDGER).exists():
        return 1
    with (folder / LEDGER).open("a+b") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        ledger.seek(0)
        earlier = _earlier(ledger, key)
        if purpose != "submission" and earlier == 0:
            return 1
        line = {"attempt": earlier + 1, "key": _digest(key), "run_id": run_id}
        ledger.write(json.dumps(line, sort_keys=True).encode() + b"\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return earlier + 1


def _earlier(ledger: BinaryIO, key: Key | ConversionKey) -> int:
    """How many attempts of ``key`` the ledger holds."""
    digest = _digest(key)
    return sum(_key(line, number) == digest for number, line in enumerate(ledger, 1))


def _digest(key: Key | ConversionKey) -> str:
    return sha256_hex(encode(asdict(key)))


def _key(line: bytes, number: int) -> str:
    try:
        return str(json.loads(line)["key"])
    except (ValueError, KeyError, TypeError) as error:
        fix = "restore it, or set RESULTS_DIR to a new folder"
        raise OSError(
            errno.EIO, f"{LEDGER}: expected an attempt in line {number}, found none; {fix}"
        ) from error
