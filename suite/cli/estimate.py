"""How long a run takes, and warnings before one that is long or uses more threads than there are cores."""

from __future__ import annotations

import contextlib
import os

from suite.log.units import count, significant, span
from suite.plan.custom import custom_code
from suite.plan.errors import Refusal
from suite.plan.plan import Plan
from suite.sweep.estimate import flop_on_processor, guessed_seconds
from suite.sweep.results import last_run

_HOUR = 3600.0


def expected_time(plan: Plan) -> tuple[float | None, str]:
    """The seconds that the run takes, None where nothing is known, and a sentence that says from what."""
    with contextlib.suppress(Refusal):  # of custom code, which the run itself reports
        last = last_run(plan, custom_code(plan.settings, plan.accelerator))
        if last is not None and last.seconds is not None:
            return last.seconds, f"about {span(last.seconds)}, as long as {last.folder.name}"
    if plan.settings.mode == "quality":
        usual = "minutes" if plan.key.scale == "mini" else "hours or days"
        return None, f"until the target is reached: {usual} per repeat"
    guess = guessed_seconds(plan)
    if guess is None:
        return None, "not known: it depends on disks and processor"
    reason = "the results folder has no run of these settings"
    if (flop := flop_on_processor(plan)) is not None:
        reason += f", and {significant(plan.repeats * flop / 1e12)} TFLOP are many for a processor"
    return guess, f"about {span(guess)}, a guess: {reason}"


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
