"""``python -m suite audit-replay``: run repeats of a submission again and compare, item by item.

From its log alone. Exit codes: 0 every item held (L3) · 1 rejected, or an item differs · 2 usage or internal
error · 4 nothing differs, but something that L3 needs could not be compared · 10 to 25 and 130 as of ``run``:
it could not be run. With ``--device cpu``, which times nothing, 0 means that the first steps hold: no level.
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
from suite.cli.guard import UsageError, relative

if TYPE_CHECKING:
    from suite.audit.items import ComparedItem
    from suite.log.files import Raw
    from suite.replay.repeats import ReplayOptions

INCOMPLETE = 4
_REPORT, _SIGNED = "replay.json", "verdict.dsse.json"


def main(args: argparse.Namespace) -> int:
    """Judge the result, replay it, compare, and write the outcome."""
    # A replay of repeats ignores the options of the first steps, and the other way round.
    unused = ("nonce", "pair", "repeats") if args.device else ("steps", "framework", "threads")
    for name in unused:
        if getattr(args, name) is not None:
            how = "without" if args.device else "with"
            raise UsageError(f"--{name}: expected {how} --device only; leave it out")
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads: expected at least 1, found {args.threads}")
    return _first_steps(args) if args.device else _replay(args)


def judged_result(args: argparse.Namespace) -> tuple[dict[str, Any], Raw | None]:
    """The verdict on the result and the log's bytes.

    None instead of the bytes where nothing is run: the checker rejects the result, which perhaps cannot even
    be read, or its submitter withdrew it.
    """
    from suite.log.files import folder_of, read_folder

    refuse_inside(args.out, args.result)
    value = judged_at(args.result, args.submissions)
    if not value["accepted"] or value["withdrawal"] is not None:
        return value, None
    raw = read_folder(folder_of(args.result))
    if _digest(raw) != value["sha256"]:
        raise UsageError("run.jsonl changed while the command ran: run it again")
    return value, raw


def _digest(raw: Raw) -> str:
    from suite.log.canonical import sha256_hex

    return sha256_hex(raw.data)


def nonce_of(args: argparse.Namespace) -> str:
    """The auditor's nonce, given or drawn; it is printed before the replay."""
    nonce = secrets.token_hex(32) if args.nonce is None else str(args.nonce)
    if not re.fullmatch("[0-9a-f]{64}", nonce):
        raise UsageError(
            "--nonce: expected 64 hexadecimal digits in lower case, such as `openssl rand -hex 32`"
        )
    print(f"nonce {nonce}", file=sys.stderr, flush=True)
    return nonce


def output_folder(args: argparse.Namespace, raw: Raw, kind: str, nonce: str) -> Path:
    """The folder for the logs and the verdict of one audit, named after the log and the nonce."""
    out: Path = args.out or Path("audits") / _digest(raw)[:16] / f"{kind}-{nonce[:8]}"
    refuse_inside(out, args.result)
    return out.resolve()


def replay_options(args: argparse.Namespace, results: Path) -> ReplayOptions:
    """The auditor's options for a replay on this machine."""
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


def print_rejection(value: Mapping[str, Any]) -> int:
    """Print the verdict on a rejected or withdrawn result, which is not replayed."""
    from suite.audit import show

    for line in show.lines(value):
        print(line)
    withdrawn = value["withdrawal"] is not None
    print(f"nothing was run: {'its submitter withdrew' if withdrawn else 'the checker rejects'} the result")
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
    value, raw = judged_result(args)
    if raw is None:
        return print_rejection(value)
    if not value["scored"]:
        raise UsageError("expected a completed run, found one without a score: there is nothing to repeat")
    nonce = nonce_of(args)
    record = record_of(raw)
    count = 1 if args.repeats is None else args.repeats
    try:
        chosen = select(root_of(raw.data), nonce, count, len(record.repeats))
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    out = output_folder(args, raw, "replay", nonce)
    run, found = prepare_replay(record.header.data, replay_options(args, out), chosen)
    stops = [item for item in different(found) if item.name != "code"]
    if stops:  # this machine has not what ran in the submission: a replay would show nothing
        return _finish(args, with_replay(value, found, nonce, raw.data, None), out, key)
    outcome = run_replay(run, record.header["repeats"])
    if outcome.exit_code:
        print(f"error: {outcome.message}", file=sys.stderr)
        return outcome.exit_code
    ours = read_folder(outcome.folder)
    return _finish(args, with_replay(value, compared(raw, ours, nonce), nonce, raw.data, ours.data), out, key)


def _finish(args: argparse.Namespace, value: dict[str, Any], out: Path, key: Any) -> int:
    """Write the verdict, signed with a key if given, and print it; returns the exit code."""
    from suite.audit import replayed, vsa

    files = {_REPORT: (json.dumps(value, indent=2) + "\n").encode("ascii")}
    if key is not None:
        files[_SIGNED] = vsa.signed(value, key)
    write_and_print(args, value, files, out, replayed.lines(value))
    return {replayed.HELD: ACCEPTED, replayed.INCOMPLETE: INCOMPLETE}.get(
        value["replay"]["outcome"], REJECTED
    )


def write_and_print(
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
    print(f"written: {', '.join(str(relative(out) / name) for name in files)}")


def _first_steps(args: argparse.Namespace) -> int:
    from suite.audit.items import counted, different
    from suite.audit.items import lines as item_lines
    from suite.log.reader import record_of
    from suite.replay.first_steps import recompute

    if args.key is not None:
        raise UsageError("--key: first steps on a CPU prove no time, so no level is signed for them")
    value, raw = judged_result(args)
    if raw is None:
        return print_rejection(value)
    record = record_of(raw)
    if not record.computes:
        raise UsageError(f"expected a run of train or infer, found a {record.kind}: it computes no steps")
    out = output_folder(args, raw, f"first-steps-{args.framework or record.key.framework}", _digest(raw))
    steps = 3 if args.steps is None else args.steps
    items: list[ComparedItem] = recompute(
        record, replay_options(args, out), args.framework or record.key.framework, steps, args.threads
    )
    rows = [item.as_dict() for item in items]
    report = {**value, "first_steps": rows}
    files = {_REPORT: (json.dumps(report, indent=2) + "\n").encode("ascii")}
    differs = bool(different(items))
    summary = f"first {steps} steps {'differ' if differs else 'hold'}: {counted(rows)}"
    end = "no level: only a replay of whole repeats, with their time, reaches L3"
    write_and_print(args, report, files, out, [*item_lines(rows), "", summary, end])
    return REJECTED if differs else ACCEPTED
