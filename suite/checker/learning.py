"""Whether the curve of the losses is that of this work in this precision, and every repeat's its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from suite.checker.context import Context, Fault, HeaderContext, end_of, header_rule, rule
from suite.checker.divisions import usual_hyperparameters
from suite.record import statistics
from suite.record.fingerprint import demanded
from suite.record.model import Repeat

_START, _MIDDLE, _END = (0, 10), (50, 60), (100, 110)
_NEAR = 5  # steps averaged on either side of the window's start
_RECURRING = 3  # equal losses before and in the window that are no chance


def _mean(losses: Sequence[float], units: Sequence[int], span: tuple[int, int]) -> float:
    """Loss per unit of work over some steps, of one worker."""
    first, last = span
    return statistics.total(losses[first:last]) / sum(units[first:last])


def _change(losses: Sequence[float], units: Sequence[int], at: int) -> float:
    """How far the loss per unit moves from the ``_NEAR`` steps that begin at ``at`` to as many after them."""
    middle = at + _NEAR
    return abs(_mean(losses, units, (middle, middle + _NEAR)) - _mean(losses, units, (at, middle)))


def curve(losses: Sequence[float], units: Sequence[int]) -> tuple[float, float, float]:
    """Loss per unit at the start of one worker's steps, and that in the middle and at the end over it."""
    start = _mean(losses, units, _START)
    middle, end = (_mean(losses, units, span) / start if start else math.inf for span in (_MIDDLE, _END))
    return start, middle, end


def _trained(c: Context) -> Iterator[tuple[Repeat, int, Sequence[float], Sequence[int]]]:
    """(repeat, worker, losses, units) of training that has them all (TRAIN-001, UNIT-002)."""
    if c.key.phase != "train":
        return
    for repeat in c.repeats:
        for worker in repeat.workers:
            losses = [loss for loss in repeat.losses(worker) if loss is not None]
            units = repeat.column("units", worker)
            if len(losses) == len(units) and min(units) > 0:
                yield repeat, worker, losses, units


def envelope(rows: Sequence[Mapping[str, Any]], key: Any) -> Mapping[str, Any] | None:
    """The bands of the loss for a key, from the workload's rules; None where no honest run settled them."""
    for row in rows:
        same = all(getattr(key, name) == row[name] for name in ("variant", "batch", "data"))
        if same and key.precision in row["precisions"]:
            return row
    return None


@rule("TRAIN-009", mode="throughput")
def loss_in_envelope(c: Context) -> Iterator[Fault]:
    """The loss per unit of work starts and falls as it did in the runs that settled the bands.

    Those had the specification's hyperparameters: another rate trains otherwise (DIV-002 says so).
    """
    if c.key.phase != "train" or c.header["hyper"] != usual_hyperparameters(c):
        return
    bands = envelope(c.workload_rules.get("loss_curve", ()), c.key)
    if bands is None:
        return  # TRAIN-012: closed refuses it before it runs
    for repeat, worker, losses, units in _trained(c):
        for name, value in zip(("start", "middle", "end"), curve(losses, units), strict=True):
            low, high = (float(edge) for edge in bands[name])
            if not low <= value <= high:
                place = f"repeat {repeat.index}, worker {worker}, loss per unit at the {name} of its steps"
                of = "" if name == "start" else " of that at the start"
                yield Fault(place, f"from {low:.6g} to {high:.6g}{of}", f"{value:.6g}")


@header_rule("TRAIN-012")
def envelope_settled(c: HeaderContext) -> Iterator[Fault]:
    """In closed the rules hold bands for the loss of what is trained."""
    if c.division != "closed" or c.mode != "throughput" or c.key.phase != "train":
        return
    if envelope(c.workload_rules.get("loss_curve", ()), c.key) is None:
        found = f"none for {c.key.variant}, batch {c.key.batch}, {c.key.precision}, {c.key.data} data"
        yield Fault("header, data.key", "bands of the loss, settled before closed runs", found)


@rule("TRAIN-010", mode="throughput")
def repeats_of_their_own(c: Context) -> Iterator[Fault]:
    """Training on other batches gives other losses and other weights."""
    if c.key.phase != "train":
        return
    for first, second in combinations(c.repeats, 2):
        if first.column("batch_digest") == second.column("batch_digest"):
            continue
        found = [name for name in ("loss", "grad_norm") if _equal(first, second, name)]
        final = end_of(second)["parameters"]["final"]
        if final is not None and final == end_of(first)["parameters"]["final"]:
            found.append("parameters.final")
        for name in found:
            place = f"repeat {second.index}, {name}"
            yield Fault(place, "its own, as its batches are", f"that of repeat {first.index}")


def _equal(first: Repeat, second: Repeat, name: str) -> bool:
    values = first.column(name)
    return values == second.column(name) and None not in values


@rule("TRAIN-011", mode="throughput")
def losses_vary(c: Context) -> Iterator[Fault]:
    """A loss that is measured differs from step to step."""
    for repeat, worker, losses, _ in _trained(c):
        distinct = len(set(losses))
        if distinct < c.rules.limit("distinct_losses"):
            place = f"repeat {repeat.index}, worker {worker}, loss of its steps"
            wanted = f"at least {c.rules.limit('distinct_losses'):.0f} distinct losses"
            yield Fault(place, wanted, str(distinct))


@rule("WARM-001", mode="throughput")
def training_goes_on(c: Context) -> Iterator[Fault]:
    """The window goes on where warm-up ended: no loss comes again, and none jumps.

    Of a training that is chaotic by then (``fingerprint.tolerances``) no jump is remarkable.
    """
    warmup = c.rules.limits["counts"]["warmup_steps"]
    chaotic = _chaotic(c, warmup)
    for repeat, worker, losses, units in _trained(c):
        place = f"repeat {repeat.index}, worker {worker}, loss of step {warmup}"
        again = set(losses[:warmup]) & set(losses[warmup:])
        if len(again) >= _RECURRING:
            yield Fault(place, "losses that warm-up has not had", f"{len(again)} of them again")
            continue
        if chaotic:
            continue
        here = warmup - _NEAR
        others = (at for at in range(len(losses) - 2 * _NEAR + 1) if abs(at - here) >= _NEAR)
        found, allowed = _change(losses, units, here), c.rules.limit("warm_jump")
        most = 0.0
        for at in others:  # hardly ever more than a few: one that is large enough says that none jumps
            most = max(most, allowed * _change(losses, units, at))
            if found <= most:
                break
        else:
            yield Fault(place, f"a change of at most {most:.6g} per unit", f"{found:.6g}")


def _chaotic(c: Context, step: int) -> bool:
    """Whether rounding has grown to chaos in this workload's training before ``step``."""
    known = c.workload_rules["fingerprint"]["tolerances"].get(c.key.variant) or ()
    return math.inf in demanded(map(float, known))[: step + 1]


@rule("WARM-002", mode="throughput")
def warmup_takes_its_time(c: Context) -> Iterator[Fault]:
    """Ten steps of warm-up take at least half the time of ten measured ones."""
    if c.converts:  # the time between two marks is not that of a shard
        return
    for repeat in c.repeats:
        end = end_of(repeat)
        window, count = end["window"]["ns"], c.rules.limits["counts"]
        if end["mark_kind"] == "host_dispatch":
            typical = window / count["measured_steps"]
        else:
            typical = statistics.median([ns for w in repeat.workers for ns in repeat.durations_ns(w)])
        least = c.rules.limit("warm_share") * typical * count["warmup_steps"]
        if end["warmup_ns"] < least:
            yield Fault(end.place("warmup_ns"), f"at least {int(least)}", str(end["warmup_ns"]))


@rule("WARM-003", mode="throughput")
def warmup_marks_inside(c: Context) -> Iterator[Fault]:
    """The marks of warm-up lie within the time that it took."""
    for repeat in c.repeats:
        end = end_of(repeat)
        slack = max(c.rules.limit("marks_relative") * end["warmup_ns"], c.rules.limit("marks_ns"))
        for worker in repeat.workers:
            last = repeat.steps_of(worker, "warmup")[-1]
            if last["mark_ns"] > end["warmup_ns"] + slack:
                yield Fault(last.place("mark_ns"), f"at most {end['warmup_ns']}", str(last["mark_ns"]))


@rule("DATA-007", mode="throughput")
def batches_follow_the_seed(c: Context) -> Iterator[Fault]:
    """Where the seed orders the data every repeat has batches of its own; elsewhere all have the same.

    No more can be said of them: a digest covers the bytes of a batch, which the checker does not have.
    """
    seeded = c.workload_rules.get("batches_by_seed", {}).get(c.key.data)
    if seeded is None or c.converts:
        return
    for first, second in pairwise(c.repeats):
        for worker in first.workers:
            ours, theirs = (repeat.column("batch_digest", worker) for repeat in (first, second))
            same = sum(one == other for one, other in zip(ours, theirs, strict=False))
            place = f"repeat {second.index}, worker {worker}, batch_digest of its steps"
            if seeded and 2 * same > len(ours):
                yield Fault(
                    place, f"batches of its own seed, not those of repeat {first.index}", f"{same} equal"
                )
            elif not seeded and same < len(ours):
                yield Fault(place, f"the batches of repeat {first.index}", f"{len(ours) - same} others")
