"""``python -m suite audit-replay``: run repeats of a submission again and compare, item by item.

From its log alone. Exit codes: 0 every item held (L3) · 1 rejected, or an item differs · 2 usage or internal
error · 4 nothing differs, but something that L3 needs could not be compared (always with ``--device cpu``,
which times nothing) · 10 to 25 and 130 as of ``run``: it could not be run.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cli.audit import judged_at, refuse_inside, write
from suite.cli.check import ACCEPTED, REJECTED
from suite.cli.guard import UsageError

if TYPE_CHECKING:
    from suite.audit.items import ComparedItem
    from suite.log.files import Raw
    from suite.replay.repeats import ReplayOptions

INCOMPLETE = 4
_REPORT, _SIGNED = "replay.json", "verdict.dsse.json"


def main(args: argparse.Namespace) -> int:
    """Judge, run again, compare, write."""
    return _first_steps(args) if args.device else _replay(args)


def accepted(args: argparse.Namespace) -> tuple[dict[str, Any], Raw]:
    """The judge's verdict and the log's bytes; UsageError-free: a rejected result has ``accepted`` false."""
    from suite.audit.examine import folder_of
    from suite.log.files import read_folder

    refuse_inside(args.out, args.result)
    value = judged_at(args.result, args.submissions)
    if not value["accepted"]:
        return value, read_folder(args.result)
    raw = read_folder(folder_of(args.result))
    if _digest(raw) != value["sha256"]:
        raise UsageError("run.jsonl changed while it was judged: run the command again")
    return value, raw


def _digest(raw: Raw) -> str:
    from suite.log.canonical import sha256_hex

    return sha256_hex(raw.data)


def nonce_of(args: argparse.Namespace) -> str:
    """The auditor's nonce, given or drawn; it is printed before anything is run."""
    nonce = secrets.token_hex(32) if args.nonce is None else str(args.nonce)
    if not re.fullmatch("[0-9a-f]{64}", nonce):
        raise UsageError(
            "--nonce: expected 64 hexadecimal digits in lower case, such as `openssl rand -hex 32`"
        )
    print(f"nonce {nonce}", file=sys.stderr, flush=True)
    return nonce


def place_of(args: argparse.Namespace, raw: Raw, kind: str, nonce: str) -> Path:
    """Where logs and verdict of one audit go: a folder for the log, one in it for the nonce."""
    out: Path = args.out or Path("audits") / _digest(raw)[:16] / f"{kind}-{nonce[:8]}"
    refuse_inside(out, args.result)
    return out.resolve()


def here_of(args: argparse.Namespace, results: Path) -> ReplayOptions:
    """What the auditor has on this machine."""
    from suite.replay.repeats import ReplayOptions

    return ReplayOptions(
        results=results,
        data_root=args.data_root.resolve(),
        cache=args.cache_dir.resolve(),
        pair=None if args.pair is None else args.pair.resolve(),
        python=None if args.interpreter is None else args.interpreter.absolute(),
        other_code=args.other_code,
        fetch=args.fetch,
    )


def rejected(value: Mapping[str, Any]) -> int:
    """Say why nothing is run again: what is rejected needs no replay."""
    from suite.audit import show

    for line in show.lines(value):
        print(line)
    print("nothing was run: the judge rejects the result")
    return REJECTED


def _replay(args: argparse.Namespace) -> int:
    from suite.audit.items import different
    from suite.audit.replay import select
    from suite.audit.replayed import compared, root_of, with_replay
    from suite.log.files import read_folder
    from suite.log.reader import record_of
    from suite.replay.repeats import prepare_replay, run_replay
    from suite.submissions.signing import keys

    key = None if args.key is None else keys.read(args.key)
    value, raw = accepted(args)
    if not value["accepted"]:
        return rejected(value)
    if not value["scored"]:
        raise UsageError("expected a completed run, found one without a score: there is nothing to repeat")
    nonce = nonce_of(args)
    record = record_of(raw)
    try:
        chosen = select(root_of(raw.data), nonce, args.repeats, len(record.repeats))
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    out = place_of(args, raw, "replay", nonce)
    run, found = prepare_replay(record.header.data, here_of(args, out), chosen)
    stops = [item for item in different(found) if item.name != "code"]
    if stops:  # what is here is not what ran there: no step of it would tell anything
        return _finish(args, with_replay(value, found, nonce, raw.data, None), out, key)
    outcome = run_replay(run, record.header["repeats"])
    if outcome.exit_code:
        print(f"error: {outcome.message}", file=sys.stderr)
        return outcome.exit_code
    ours = read_folder(outcome.folder)
    return _finish(args, with_replay(value, compared(raw, ours, nonce), nonce, raw.data, ours.data), out, key)


def _finish(args: argparse.Namespace, value: dict[str, Any], out: Path, key: Any) -> int:
    """Write the verdict, signed where there is a key, print it, and say what it came to as an exit code."""
    from suite.audit import replayed, vsa

    files = {_REPORT: (json.dumps(value, indent=2) + "\n").encode("ascii")}
    if key is not None:
        files[_SIGNED] = vsa.signed(value, key)
    tell(args, value, files, out, replayed.lines(value))
    return {replayed.HELD: ACCEPTED, replayed.INCOMPLETE: INCOMPLETE}.get(
        value["replay"]["outcome"], REJECTED
    )


def tell(
    args: argparse.Namespace, value: Mapping[str, Any], files: Mapping[str, bytes], out: Path, lines: Any
) -> None:
    """Write ``files`` under ``out``, and print ``value`` or its lines."""
    for name, content in files.items():
        write(out / name, content)
    if args.json:
        print(json.dumps(value, indent=2))
        return
    for line in lines:
        print(line)
    shown = out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out
    print(f"written: {', '.join(str(shown / name) for name in files)}")


def _first_steps(args: argparse.Namespace) -> int:
    from suite.audit.items import counted, different
    from suite.audit.items import lines as item_lines
    from suite.log.reader import record_of
    from suite.replay.first_steps import recompute

    if args.key is not None:
        raise UsageError("--key: first steps on a processor prove no time, so no level is signed for them")
    value, raw = accepted(args)
    if not value["accepted"]:
        return rejected(value)
    record = record_of(raw)
    if record.conversion is not None:
        raise UsageError("expected a run of train or infer, found a conversion: it computes no steps")
    out = place_of(args, raw, f"first-steps-{args.framework or record.key.framework}", _digest(raw))
    items: list[ComparedItem] = recompute(
        record, here_of(args, out), args.framework or record.key.framework, args.steps, args.threads
    )
    rows = [item.as_dict() for item in items]
    told = {**value, "first_steps": rows}
    files = {_REPORT: (json.dumps(told, indent=2) + "\n").encode("ascii")}
    differs = bool(different(items))
    summary = f"first {args.steps} steps {'differ' if differs else 'hold'}: {counted(rows)}"
    end = "no level: only a replay of whole repeats, with their time, reaches L3"
    tell(args, told, files, out, [*item_lines(rows), "", summary, end])
    return REJECTED if differs else ACCEPTED
