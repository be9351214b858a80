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

from suite.record.canonical import encode, sha256_hex
from suite.workloads.contract import Key

LEDGER = "attempts.jsonl"


def next_attempt(folder: Path, key: Key, purpose: str, run_id: str) -> int:
    """Count this run of ``key`` in the ledger of ``folder``; returns its number, from 1.

    A trial before any submission run is number 1 and is not written. OSError if the ledger cannot be written.
    """
    digest = sha256_hex(encode(asdict(key)))
    folder.mkdir(parents=True, exist_ok=True)
    if purpose != "submission" and not (folder / LEDGER).exists():
        return 1
    with (folder / LEDGER).open("a+b") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        ledger.seek(0)
        earlier = sum(_key(line, number) == digest for number, line in enumerate(ledger, 1))
        if purpose != "submission" and earlier == 0:
            return 1
        line = {"attempt": earlier + 1, "key": digest, "run_id": run_id}
        ledger.write(json.dumps(line, sort_keys=True).encode() + b"\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return earlier + 1


def _key(line: bytes, number: int) -> str:
    try:
        return str(json.loads(line)["key"])
    except (ValueError, KeyError, TypeError) as error:
        mend = "restore it, or set RESULTS_DIR to a new folder"
        raise OSError(
            errno.EIO, f"{LEDGER}: expected an attempt in line {number}, found none; {mend}"
        ) from error
