"""WARM: warm-up is the beginning of the measured training, at a similar speed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from suite.checker.context import Context, Fault, rule
from suite.checker.time import most_repeats
from suite.checker.training import mean_loss, trained
from suite.contract import BENCHMARK
from suite.log import statistics
from suite.log.fingerprint import demanded

_NEAR = 5  # steps averaged on either side of the window's start
_RECURRING = 3  # losses of warm-up that recur in the window and are not chance


def _change(losses: Sequence[float], units: Sequence[int], at: int) -> float:
    """The change of the loss per unit from the ``_NEAR`` steps that begin at ``at`` to the next ``_NEAR``."""
    middle = at + _NEAR
    return abs(mean_loss(losses, units, (middle, middle + _NEAR)) - mean_loss(losses, units, (at, middle)))


@rule("WARM-001", mode="throughput", kind=BENCHMARK)
def losses_continue(c: Context) -> Iterator[Fault]:
    """The losses of the window continue those of warm-up: none recurs, and none jumps.

    The rule ignores jumps once rounding errors dominate (``fingerprint.tolerances``).
    """
    warmup = c.counts["warmup_steps"]
    dominated = _rounding_dominates(c, warmup)
    for repeat, losses, units in trained(c):
        location = f"repeat {repeat.index}, loss of step {warmup}"
        recurring = set(losses[:warmup]) & set(losses[warmup:])
        if len(recurring) >= _RECURRING:
            yield Fault(location, "losses that did not occur in warm-up", f"{len(recurring)} that did")
            continue
        if dominated:
            continue
        start = warmup - _NEAR
        others = (at for at in range(len(losses) - 2 * _NEAR + 1) if abs(at - start) >= _NEAR)
        found, allowed = _change(losses, units, start), c.rules.limit("warm_jump")
        most = 0.0
        for at in others:  # ends at the first change that is as large
            most = max(most, allowed * _change(losses, units, at))
            if found <= most:
                break
        else:
            yield Fault(location, f"a change of at most {most:.6g} per unit", f"{found:.6g}")


def _rounding_dominates(c: Context, step: int) -> bool:
    """Whether rounding errors dominate this workload's training at or before ``step``."""
    known = c.workload_rules["fingerprint"]["tolerances"].get(c.key.variant) or ()
    return math.inf in demanded(map(float, known))[: step + 1]


@rule("WARM-002", mode="throughput", kind=BENCHMARK)
def warmup_duration(c: Context) -> Iterator[Fault]:
    """Warm-up takes at least half the time of as many measured steps."""
    for repeat in c.repeats:
        for report in repeat.reports:
            window, count = report["window"]["ns"], c.counts
            if report["timestamp_kind"] == "host_dispatch":
                typical = window / count["measured_steps"]
            else:
                typical = statistics.median(repeat.durations_ns(report["rank"]))
            least = c.rules.limit("warm_share") * typical * count["warmup_steps"]
            if report["warmup_ns"] < least:
                yield Fault(report.location("warmup_ns"), f"at least {int(least)}", report["warmup_ns"])


@rule("WARM-003", mode="throughput", kind=BENCHMARK)
def soak_is_as_fast(c: Context) -> Iterator[Fault]:
    """In most repeats a step of the window takes about as long as one of the soak before it.

    The soak runs the same steps, and drains the device after every ten: those of `ncf` inference took nearly
    twice as long in PyTorch. In JAX its window took nearly three times as long, with the copies of a hundred
    outputs. In single_stream each step waits, which makes it longer than one of the soak. A cold soak reads
    two batches again and again, which are in the page cache.
    """
    if c.key.cache == "cold":
        return
    low = c.rules.limit("soak_step_single" if c.key.scenario == "single_stream" else "soak_step_low")
    high, steps = c.rules.limit("soak_step_high"), c.counts["measured_steps"]
    faults: list[list[Fault]] = []  # of each repeat
    for repeat in c.repeats:
        faults.append([])
        for report in repeat.reports:
            if not report["soak_steps"] or not report["soak_ns"]:
                continue
            soak = report["soak_ns"] / report["soak_steps"]
            found = report["window"]["ns"] / steps
            if not low * soak <= found <= high * soak:
                wanted = f"{low:g} to {high:g} times {soak:.0f} ns a step, as in the soak, in most repeats"
                faults[-1].append(Fault(report.location("window.ns"), wanted, f"{found:.0f} ns a step"))
    yield from most_repeats(faults)
