"""``min_seconds``: the steps of a window, from the time that an untimed pilot takes for 100 of them.

The pilot is a worker of its own, with all ranks, that sets up, compiles and soaks as a repeat does, and runs
10 + 100 steps. Every repeat of the run then has the same number of steps, which is in the log's header.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from suite.contract import MEASURED_STEPS, STEPS
from suite.harness.largest import run_probe
from suite.harness.scratch import Scratch
from suite.harness.worker_process import WorkerFailure
from suite.plan.errors import EnvironmentProblem, Unsupported
from suite.plan.plan import Plan
from suite.plan.prepared import Resources
from suite.rules import load

_ROOM = 1.1  # steps get faster after the pilot, and a window must last as long as was asked for


def fix_steps(plan: Plan, resources: Resources, report: Callable[[str], None]) -> Plan:
    """``plan`` with the steps of its windows; unchanged without ``min_seconds``.

    Unsupported if so many steps are more than a log can hold; EnvironmentProblem if the pilot fails.
    """
    seconds = plan.settings.min_seconds
    if seconds is None:
        return plan
    with ExitStack() as stack:
        scratch = Scratch(plan.settings.cache_dir)
        stack.callback(scratch.remove)
        try:
            events = run_probe(replace(plan, tail_ns=0), resources, scratch.folder("pilot"), STEPS, "pilot")
        except WorkerFailure as failure:
            raise EnvironmentProblem(f"min_seconds: the pilot failed: {failure.message}") from failure
    pilot_ns = max(int(event["span_ns"]) for event in events)
    hundreds = max(1, math.ceil(_ROOM * seconds * 1e9 / pilot_ns))
    steps = hundreds * MEASURED_STEPS
    bounds = load(plan.rules_version).limits["declared_counts"]
    most = min(bounds["measured_steps"][1], bounds["steps"] // (plan.repeats * plan.settings.devices))
    if steps > most:
        longest = most / MEASURED_STEPS * pilot_ns / 1e9 / _ROOM
        raise Unsupported(
            f"min_seconds: expected at most {longest:.0f} s, which take {most:,} steps, found {seconds} s "
            f"for {steps:,} steps; choose fewer seconds, or a larger batch"
        )
    report(
        f"pilot: 100 steps take {pilot_ns / 1e9:.3g} s; windows of {steps:,} steps last {seconds} s or more"
    )
    return replace(plan, measured_steps=steps, pilot_ns=pilot_ns)
