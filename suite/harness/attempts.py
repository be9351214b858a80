"""The ledger of attempts: from the first submission run of a benchmark on, every run of it is counted.

The ledger is ``attempts.jsonl`` beside the results, one line per run. The best of many runs looks like any
other run; the attempt number in the log lets an auditor ask for the missing ones.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import BinaryIO

from suite.contract import ConversionKey, Key, key_fields
from suite.log.canonical import encode, sha256_hex

LEDGER = "attempts.jsonl"


def next_attempt(folder: Path, key: Key | ConversionKey) -> int:
    """The number, from 1, of the next run of ``key`` in the ledger of ``folder``. Raises OSError."""
    if not (folder / LEDGER).exists():
        return 1
    with (folder / LEDGER).open("rb") as ledger:
        return 1 + _earlier(ledger, key)


def count_attempt(folder: Path, key: Key | ConversionKey, purpose: str, run_id: str) -> int:
    """Count this run of ``key`` in the ledger of ``folder``; returns its number, from 1.

    A trial before the first submission run has number 1 and is not written. OSError if the ledger cannot be
    read or written.
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
    """The number of attempts of ``key`` in the ledger."""
    digest = _digest(key)
    return sum(_key(line, number) == digest for number, line in enumerate(ledger, 1))


def _digest(key: Key | ConversionKey) -> str:
    return sha256_hex(encode(key_fields(key)))


def _key(line: bytes, number: int) -> str:
    try:
        return str(json.loads(line)["key"])
    except (ValueError, KeyError, TypeError) as error:
        fix = "restore it, or set RESULTS_DIR to a new folder"
        raise OSError(
            errno.EIO, f"{LEDGER}: expected an attempt in line {number}, found other text; {fix}"
        ) from error
