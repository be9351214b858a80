"""The mutation sweep: ``python -m tests.sweep [--kind …] [--log …] [--json OUT] [--seed S] [--every N]``.

The sweep changes every field of every kind of event in honest logs by generic mutators, at one position and
at all; then it repairs claims, reasons, digests, seeds and chain, as a forger with a signing key could. It
counts the verdicts on mutants that move time or units by more than 0.1 % or change key, identity, counts or
order.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from suite.common.stream import Stream
from tests.sweep.known import known, write
from tests.sweep.logs import LOGS, honest
from tests.sweep.mutants import mutants
from tests.sweep.run import FLAGGED, REJECTED, SURVIVED, Tally, attempts

_COLUMNS = ("mutants", "at stake", REJECTED, FLAGGED, SURVIVED, "free")


def sweep(
    names: Sequence[str],
    kinds: Sequence[str],
    seed: int,
    every: int,
    folder: str | None = None,
    only: Sequence[str] = (),
) -> Tally:
    """The tally over the named logs (and the result in ``folder``), of one mutant in ``every``."""
    tally = Tally()
    for number, name in enumerate((*names, *([folder] if folder else []))):
        events = honest(name, folder if name not in LOGS else None)
        chosen = [
            one for one in mutants(events, seed) if _selected(one.kind, kinds) and _selected(one.name, only)
        ]
        if every > 1:
            draws = Stream("sweep sample", seed, number).integers(every, len(chosen)) if chosen else ()
            chosen = [one for one, draw in zip(chosen, draws, strict=True) if draw == 0]
        for found in attempts(name, events, chosen):
            tally.add(found)
    return tally


def _selected(name: str, selection: Sequence[str]) -> bool:
    return not selection or name in selection


def main(argv: Sequence[str] | None = None) -> int:
    """Sweep and print; 1 if under 99 % of what is at stake was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep")
    parser.add_argument("--kind", nargs="*", default=[], help="kinds of event; all without")
    parser.add_argument("--log", nargs="*", choices=tuple(LOGS), default=list(LOGS))
    parser.add_argument("--folder", help="also a result of yours that the checker accepts")
    parser.add_argument("--name", nargs="*", default=[], help="mutators, such as 'one more'; all without")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="one mutant in so many")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument(
        "--known",
        nargs="+",
        type=Path,
        metavar="OUT",
        help="sweep nothing: write the lists from what --json left",
    )
    args = parser.parse_args(argv)
    if args.known:
        write([json.loads(path.read_text()) for path in args.known], known()["survivors"])
        return 0
    started = time.perf_counter()
    tally = sweep(args.log, args.kind, args.seed, args.every, args.folder, args.name)
    print(f"{'kind':14}" + "".join(f"{name:>10}" for name in _COLUMNS))
    rows = {
        **dict(sorted(tally.totals.items())),
        "all": sum(tally.totals.values(), start=type(tally.totals["all"])()),
    }
    for kind, row in rows.items():
        print(f"{kind:14}" + "".join(f"{row[name]:>10}" for name in _COLUMNS))
    print(f"noticed: {tally.share:.2%} of what is at stake, in {time.perf_counter() - started:.0f} s")
    for mutant, found in sorted(tally.survivors.items()):
        shown = sorted({f"{one.mutant.name} ({one.mutant.scope}, {one.log})" for one in found})
        print(f"survives: {mutant}: {', '.join(shown)}")
    if args.json:
        args.json.write_text(json.dumps(tally.as_dict(), indent=1) + "\n")
    return 0 if tally.share >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
