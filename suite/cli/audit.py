"""``python -m suite audit``: the whole verdict on a result, rule by rule, and its signature.

Every rule with its outcome, the assurance level, and what the next level needs. It needs no framework, no
GPU and no network, and never writes into the result's folder.

Exit codes are those of ``check``: 0 accepted, 1 rejected or withdrawn (or a signed verdict that does not
hold), 2 usage or internal error, 3 instead of 0 with ``--strict`` when there are flags.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite.cli.check import ACCEPTED, FLAGGED, REJECTED
from suite.cli.guard import UsageError
from suite.log.units import count

_VERDICT, _SIGNED = "verdict.json", "verdict.dsse.json"


def main(args: argparse.Namespace) -> int:
    """Judge a result, print and write the verdict; or verify a signed verdict."""
    return _verify(args) if args.verify is not None else _audit(args)


def require_submissions(root: Path) -> None:
    """UsageError if ``root`` is no folder: withdrawn results and copies would not be found."""
    if not root.is_dir():
        raise UsageError(f"--submissions: expected a folder of submissions, found none at {root}")


def judged_at(path: Path, root: Path) -> dict[str, Any]:
    """The verdict on the result in ``path``, computed in the sandbox; UsageError if there is no result."""
    from suite.audit.judgement import AUDIT_TASKS, judged
    from suite.cli.archives import result_problem
    from suite.sandbox.sandbox import Sandbox

    if (problem := result_problem(path)) is not None:
        raise UsageError(f"expected a result's folder, found {problem}")
    require_submissions(root)
    with Sandbox(AUDIT_TASKS) as sandbox:
        value = judged(sandbox, path, root)
    for fault in value["not_compared"]:
        print(f"not compared with a submission that has no verdict: {fault}", file=sys.stderr)
    return value


def _audit(args: argparse.Namespace) -> int:
    from suite.audit import show, vsa
    from suite.submissions.signing import keys

    key = None if args.key is None else keys.read(args.key)
    if args.keys or args.replay is not None:
        raise UsageError("--keys and --replay go with --verify FILE")
    refuse_inside(args.out, args.result)
    value = judged_at(args.result, args.submissions)
    files = {_VERDICT: (json.dumps(value, indent=2) + "\n").encode("ascii")}
    refused = ""
    if key is not None:
        try:
            files[_SIGNED] = vsa.signed(value, key)
        except vsa.SummaryError as error:
            refused = f"; not signed: {error}"
    out = args.out or Path("audits") / (value["sha256"] or "unread")[:16]
    refuse_inside(out, args.result)
    for name, content in files.items():
        write(out / name, content)
    if args.json:
        print(json.dumps(value, indent=2))
    else:
        for line in show.lines(value):
            print(line)
        print(f"written: {', '.join(str(out / name) for name in files)}{refused}")
    return _code(value, args.strict)


def _verify(args: argparse.Namespace) -> int:
    from suite.audit import vsa
    from suite.log.safe import safe
    from suite.submissions.signing import dsse, keys

    if not args.keys or args.key is not None or args.out is not None or args.json:
        raise UsageError(
            "--verify FILE needs --keys FILE…, the public keys to trust, and none of --key, --out and --json"
        )
    trusted = [keys.read_public(path) for path in args.keys]
    with args.verify.open("rb") as file:
        content = file.read(dsse.MAX_ENVELOPE + 1)
    try:
        statement, key = vsa.verified(content, trusted)
        value = _with_replay(args, statement, judged_at(args.result, args.submissions))
        found = vsa.differences(statement, value, key)
    except vsa.SummaryError as error:
        print(f"does not hold: {safe(error, 1000)}")
        return REJECTED
    for path, expected, actual in found:
        print(f"{safe(path)}: expected {safe(expected)}, found {safe(actual)}")
    if found:
        print(f"does not hold: {count(len(found), 'difference')} from the verdict that follows now")
        return REJECTED
    predicate = statement["predicate"]
    result = f"{predicate['verificationResult']}, {', '.join(predicate['verifiedLevels'])}"
    print(f"holds: {result}, by key {key.key_id} at {predicate['timeVerified']}")
    return _code(value, args.strict)


def _with_replay(
    args: argparse.Namespace, statement: Mapping[str, Any], value: dict[str, Any]
) -> dict[str, Any]:
    """The verdict with the replay of ``statement``, compared again from both logs."""
    from suite.audit import vsa
    from suite.audit.replayed import compared, with_replay
    from suite.log.files import read_folder
    from suite.log.finding import RecordError

    nonce = vsa.replayed_with(statement)
    if nonce is None or not value["accepted"]:
        return value
    if not vsa.ran(statement):
        raise vsa.SummaryError("its replay stopped before anything was run: there is no log to compare with")
    if args.replay is None:
        raise UsageError(
            "--verify: the verdict is about a replay: give --replay DIR, the folder of the replay's log"
        )
    try:
        submitted, again = read_folder(args.result), read_folder(args.replay)
        return with_replay(value, compared(submitted, again, nonce), nonce, submitted.data, again.data)
    except (RecordError, ValueError) as error:
        raise vsa.SummaryError(f"the replay cannot be compared: {error}") from error


def _code(value: Mapping[str, Any], strict: bool) -> int:
    if not value["accepted"] or value["withdrawal"] is not None:
        return REJECTED
    return FLAGGED if strict and value["flags"] else ACCEPTED


def refuse_inside(out: Path | None, result: Path) -> None:
    """UsageError if ``out`` lies in the result's folder: another file there would break LOG-002."""
    from suite.log.files import folder_of

    if out is not None and out.resolve().is_relative_to(folder_of(result).resolve()):
        raise UsageError("--out: expected a folder outside of the result, which an audit never changes")


def write(path: Path, content: bytes) -> None:
    """Write a file atomically; an existing file is replaced, and no link is followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".verdict-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
