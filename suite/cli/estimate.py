"""How long a run takes, and warnings before one that is long or uses more threads than there are cores."""

from __future__ import annotations

import contextlib
import os

from suite.contract import MEASURED_STEPS, WARMUP_STEPS, ConversionKey
from suite.log.units import count, significant, span
from suite.plan.custom import custom_code
from suite.plan.errors import Refusal
from suite.plan.plan import Plan
from suite.sweep.results import last_run
from suite.workloads import specification

_START_SECONDS = 15  # a fresh process: imports and set-up
_STEP_SECONDS = {"mini": 0.1, "reference": 0.5}  # an estimate, printed as one
_CORE_FLOP = 30e9  # per second that training reaches on one core of a current processor, as an estimate
_HOUR = 3600.0


def expected_time(plan: Plan) -> tuple[float | None, str]:
    """The seconds that the run takes, None where nothing is known, and a sentence that says from what."""
    with contextlib.suppress(Refusal):  # of custom code, which the run itself reports
        if last := last_run(plan, custom_code(plan.settings, plan.accelerator)):
            folder, seconds = last
            return seconds, f"about {span(seconds)}, as long as {folder.name}"
    if plan.settings.mode == "quality":
        usual = "minutes" if plan.key.scale == "mini" else "hours or days"
        return None, f"until the target is reached: {usual} per repeat"
    fixed = _START_SECONDS + (plan.soak_ns + plan.tail_ns / plan.repeats) / 1e9
    steps = (WARMUP_STEPS + MEASURED_STEPS) * _STEP_SECONDS[plan.key.scale]
    reason = "the results folder has no run of these settings"
    if isinstance(plan.key, ConversionKey):
        if plan.key.scale == "reference":
            return None, "not known: it depends on disks and processor"
    elif plan.key.scale == "reference" and plan.device == "cpu":
        flop = specification(plan.key.workload).window_flop(plan.key)
        reason += f", and {significant(plan.repeats * flop / 1e12)} TFLOP are many for a processor"
        steps = 1.2 * flop / (_CORE_FLOP * plan.threads)  # with warm-up, soak and tail
    seconds = plan.repeats * (fixed + steps)
    return seconds, f"about {span(seconds)}, a guess: {reason}"


def warnings_of(plan: Plan) -> list[str]:
    """What a user should know before the run begins, one sentence each."""
    found, cores = [], len(os.sched_getaffinity(0))
    ranks = plan.settings.devices_per_node if plan.device == "cpu" else 1
    if ranks * plan.threads > cores:
        each = f"{count(ranks, 'rank')} with {count(plan.threads, 'thread')} each" if ranks > 1 else ""
        fits = f"ARGS=framework.threads={cores // ranks}" if ranks <= cores else f"DEVICES={cores}"
        found.append(
            f"{each or count(plan.threads, 'thread')} on {count(cores, 'core')}: they wait for each "
            f"other, and the times vary; {fits} uses no more than the cores"
        )
    if plan.key.scale == "mini":  # minutes; reading all earlier results would be in vain
        return found
    seconds, text = expected_time(plan)
    if seconds is not None and seconds > _HOUR:
        found.append(
            f"this run takes {text}; Ctrl-C ends it, and SCALE=mini runs the same code with small dimensions"
        )
    return found
