"""How long a run takes, guessed before any run of the same settings."""

from __future__ import annotations

from suite.contract import BENCHMARK, MEASURED_STEPS, WARMUP_STEPS, Key
from suite.plan.plan import Plan
from suite.workloads import specification

_START_SECONDS = 15  # a fresh process: imports and set-up
_STEP_SECONDS = {"mini": 0.1, "reference": 0.5}
_CORE_FLOP = 30e9  # per second that training reaches on one core of a current processor


def flop_on_processor(plan: Plan) -> float | None:
    """The FLOP of a window that a processor has to compute; None unless they decide how long a run takes."""
    if not isinstance(plan.key, Key) or plan.key.loads:
        return None
    if plan.key.scale != "reference" or plan.device != "cpu":
        return None
    return specification(plan.key.workload).window_flop(plan.key)


def guessed_seconds(plan: Plan) -> float | None:
    """A guess from the steps and the waiting times of ``plan``; None where it would be worth nothing."""
    if plan.settings.mode == "quality":
        return None
    if plan.kind != BENCHMARK and plan.key.scale == "reference":
        return None
    fixed = _START_SECONDS + (plan.soak_ns + plan.tail_ns / plan.repeats) / 1e9
    steps = (WARMUP_STEPS + plan.measured_steps) * _STEP_SECONDS[plan.key.scale]
    flop = flop_on_processor(plan)
    if flop is not None:
        steps = (
            1.2 * plan.measured_steps / MEASURED_STEPS * flop / (_CORE_FLOP * plan.threads)
        )  # with warm-up, soak and tail
    return plan.repeats * (fixed + steps)
