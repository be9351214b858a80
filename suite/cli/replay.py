"""``python -m suite audit-replay``: run repeats of a submission again and compare, item by item.

Exit codes: 0 every item held (L3) · 1 rejected, or an item differs · 2 usage or internal error · 4 nothing
differs, but something that L3 needs could not be compared (always with ``--device cpu``, which times nothing)
· 10 to 25 and 130 as of ``run``: it could not be run.
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

from suite.cli.audit import SUBMISSIONS, UsageError, judged_at, refuse_inside, write
from suite.cli.check import ACCEPTED, INTERNAL, REJECTED

if TYPE_CHECKING:
    from suite.audit.items import Item
    from suite.record.files import Raw
    from suite.replay.again import Here

INCOMPLETE = 4
_REPORT, _SIGNED = "replay.json", "verdict.dsse.json"
_FAULT = 1000  # characters of a fault that are told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = "Run repeats of a submission again, from its log alone, and compare item by item."
    common_arguments(parser)
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="K", help="how many of the five (default: 1)"
    )
    parser.add_argument(
        "--other-code", action="store_true",
        help="run it although this checkout has other code than the submission: never L3",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("cpu",), help="only compute the first steps again, on this machine's processor"
    )
    parser.add_argument(
        "--steps", type=int, default=3, metavar="N", help="with --device: how many (default: 3)"
    )
    parser.add_argument("--framework", metavar="NAME", help="with --device: in which (default: the log's)")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="with --device: how many (default: all cores)"
    )


def common_arguments(parser: argparse.ArgumentParser) -> None:
    """What both verbs that run a submission again take."""
    parser.add_argument("--result", type=Path, required=True, metavar="PATH", help="the result's folder")
    parser.add_argument(
        "--submissions", type=Path, default=SUBMISSIONS, metavar="DIR",
        help="the tree with the registry, and the results to compare with (default: submissions)",
    )  # fmt: skip
    parser.add_argument(
        "--nonce", metavar="HEX", help="64 hexadecimal digits of the auditor's (default: drawn, and printed)"
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help=f"sign {_SIGNED} with this private key")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where logs and verdict go (default: audits/…)"
    )
    parser.add_argument("--data-root", type=Path, default=Path("data"), metavar="DIR")
    parser.add_argument("--cache-dir", type=Path, default=Path(".cache"), metavar="DIR")
    parser.add_argument("--pair", type=Path, metavar="FILE", help="the submitter's own pair, where one ran")
    parser.add_argument(
        "--python", type=Path, metavar="FILE", help="an interpreter with the packages that ran"
    )
    parser.add_argument("--fetch", action="store_true", help="allow downloads over 1 GB")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON instead of text")


def main(args: argparse.Namespace) -> int:
    """Judge, run again, compare, write."""
    return guarded("audit-replay", _first_steps if args.device else _replay, args)


def guarded(verb: str, action: Any, args: argparse.Namespace) -> int:
    """The exit code of ``action(args)``; every failure is told in a sentence."""
    from suite.harness.log import LogError
    from suite.judge.parent import JudgeError
    from suite.plan.errors import Refusal
    from suite.record.finding import RecordError
    from suite.record.safe import safe
    from suite.signing.keys import KeyProblem

    try:
        return int(action(args))
    except Refusal as error:
        print(f"error: {safe(error, _FAULT)}", file=sys.stderr)
        return error.code
    except (UsageError, KeyProblem, JudgeError, RecordError, LogError) as error:
        print(f"{verb}: {safe(error, _FAULT)}", file=sys.stderr)
    except OSError as error:
        print(f"{verb}: {error.strerror}: {safe(error.filename)}", file=sys.stderr)
    return INTERNAL


def accepted(args: argparse.Namespace) -> tuple[dict[str, Any], Raw]:
    """The judge's verdict and the log's bytes; UsageError-free: a rejected result has ``accepted`` false."""
    from suite.audit.examine import folder_of
    from suite.record.files import read_folder

    refuse_inside(args.out, args.result)
    value = judged_at(args.result, args.submissions)
    if not value["accepted"]:
        return value, read_folder(args.result)
    raw = read_folder(folder_of(args.result))
    if _digest(raw) != value["sha256"]:
        raise UsageError("run.jsonl changed while it was judged: run the command again")
    return value, raw


def _digest(raw: Raw) -> str:
    from suite.record.canonical import sha256_hex

    return sha256_hex(raw.data)


def nonce_of(args: argparse.Namespace) -> str:
    """The auditor's nonce, given or drawn; it is told before anything is run."""
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


def here_of(args: argparse.Namespace, results: Path) -> Here:
    """What the auditor has on this machine."""
    from suite.replay.again import Here

    return Here(
        results=results,
        data_root=args.data_root.resolve(),
        cache=args.cache_dir.resolve(),
        pair=None if args.pair is None else args.pair.resolve(),
        python=None if args.python is None else args.python.absolute(),
        other_code=getattr(args, "other_code", False),
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
    from suite.record.files import read_folder
    from suite.record.reader import record_of
    from suite.replay import again
    from suite.signing import keys

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
    plan, found = again.ready(record.header.data, here_of(args, out))
    stops = [item for item in different(found) if item.name != "code"]
    if stops:  # what is here is not what ran there: no step of it would tell anything
        return _finish(args, with_replay(value, found, nonce, raw.data, None), out, key)
    outcome = again.run(plan, record.header.data, chosen)
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
    from suite.record.reader import record_of
    from suite.replay.first_steps import recompute

    if args.key is not None:
        raise UsageError("--key: first steps on a processor prove no time, so no level is signed for them")
    value, raw = accepted(args)
    if not value["accepted"]:
        return rejected(value)
    record = record_of(raw)
    out = place_of(args, raw, f"first-steps-{args.framework or record.key.framework}", _digest(raw))
    items: list[Item] = recompute(
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
