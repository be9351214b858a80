"""``python -m suite audit-perturb``: run a submission's work under another name and seed, and more of it.

The work is run under another name, from another seed, and with a wider batch: its time must not depend on
the name and must follow the work. Exit codes: 0 the time follows the work · 1 rejected, or it does not · 2
usage or internal error · 4 the machine is too noisy to decide · 10 to 25 as of ``run``: it could not be run.
"""

from __future__ import annotations

import argparse
import json

from suite.cli.check import ACCEPTED, REJECTED
from suite.cli.guard import UsageError
from suite.cli.replay import (
    INCOMPLETE,
    judged_result,
    nonce_of,
    output_folder,
    print_rejection,
    replay_options,
    write_and_print,
)


def main(args: argparse.Namespace) -> int:
    """Judge the result, run the variants, compare their times, and write the outcome."""
    from suite.audit.items import NOT_COMPARABLE, counted, different, lines
    from suite.audit.perturbed import ON_A_PROCESSOR, TOLERANCE, judge
    from suite.log.reader import record_of
    from suite.replay.perturb import measure
    from suite.replay.repeats import prepare_replay

    if args.key is not None:
        raise UsageError("--key: a perturbed run is no replay, so no level is signed for it")
    value, raw = judged_result(args)
    if raw is None:
        return print_rejection(value)
    nonce = nonce_of(args)
    record = record_of(raw)
    out = output_folder(args, raw, "perturb", nonce)
    run, _ = prepare_replay(record.header.data, replay_options(args, out), (0,))
    times = measure(run, nonce, args.repeats, args.grow)
    items = judge(times, ON_A_PROCESSOR if run.plan.device == "cpu" else TOLERANCE)
    rows = [item.as_dict() for item in items]
    windows = [{"title": one.title, "flop": one.flop, "times_ns": list(one.times_ns)} for one in times]
    report = {**value, "perturbed": {"nonce": nonce, "times": windows, "items": rows}}
    noisy = any(item.outcome == NOT_COMPARABLE for item in items)
    differs = bool(different(items))
    verdict = "does not follow the work" if differs else "cannot be decided" if noisy else "follows the work"
    files = {"perturb.json": (json.dumps(report, indent=2) + "\n").encode("ascii")}
    write_and_print(args, report, files, out, [*lines(rows), "", f"the time {verdict}: {counted(rows)}"])
    return REJECTED if differs else INCOMPLETE if noisy else ACCEPTED
