"""TRAIN and INFER: a training has plausible losses and updates; inference changes no weight."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from suite.checker.context import Context, Fault, HeaderContext, end_of, header_rule, rule
from suite.contract import BENCHMARK, LOAD, STEPS
from suite.log import statistics
from suite.log.model import Repeat

_AVERAGED = 10  # steps averaged at start and end of the loss curve
_STANDARD_ERRORS = 3  # by which the end of the loss curve may exceed its start on real data
_START, _MIDDLE, _END = (0, 10), (50, 60), (100, 110)


def mean_loss(losses: Sequence[float], units: Sequence[int], span: tuple[int, int]) -> float:
    """Loss per unit of work of the global batch over the steps from ``span[0]`` to before ``span[1]``."""
    first, last = span
    return statistics.total(losses[first:last]) / sum(units[first:last])


def curve(losses: Sequence[float], units: Sequence[int]) -> tuple[float, float, float]:
    """Loss per unit at the start of a repeat's steps, and the ratios of middle and end to it."""
    start = mean_loss(losses, units, _START)
    middle, end = (mean_loss(losses, units, span) / start if start else math.inf for span in (_MIDDLE, _END))
    return start, middle, end


def trained(c: Context) -> Iterator[tuple[Repeat, Sequence[float], Sequence[int]]]:
    """(repeat, losses, units of the global batch) of training repeats; TRAIN-001 and UNIT-002 report gaps.

    Of the first 110 steps, which the limits of the rules on losses come from.
    """
    if c.phase != "train":
        return
    for repeat in c.repeats:
        losses = [loss for loss in repeat.global_losses if loss is not None]
        units = repeat.global_units
        if len(losses) == len(units) and min(units) > 0:
            yield repeat, losses[:STEPS], units[:STEPS]


def envelope(rows: Sequence[Mapping[str, Any]], key: Any) -> Mapping[str, Any] | None:
    """The loss bands for a key's global batch in ``rows`` of the workload's rules; None if there are none."""
    if key.devices > 1 and not key.exchanges:
        return None  # each rank trains on its own, and the mean of their losses has no bands
    wanted = {"variant": key.variant, "batch": key.batch * key.devices, "data": key.data}
    for row in rows:
        same = all(row[name] == value for name, value in wanted.items())
        if same and key.precision in row["precisions"]:
            return row
    return None


@rule("TRAIN-001", mode="throughput")
def losses_present(c: Context) -> Iterator[Fault]:
    """Every training step has its loss; inference has none."""
    train = c.phase == "train"
    for repeat in c.repeats:
        for step, loss in zip(repeat.steps, repeat.column("loss"), strict=True):
            if (loss is not None) != train:
                yield Fault(step.location("loss"), "a finite loss" if train else f"null in {c.phase}", loss)
                break


@rule("TRAIN-002", mode="throughput", kind=BENCHMARK)
def first_loss_plausible(c: Context) -> Iterator[Fault]:
    """The first loss is that of an untrained model."""
    low, high = (float(limit) for limit in c.workload_rules["first_loss"])
    if c.key.phase != "train":
        return
    for repeat in c.repeats:
        loss = repeat.global_losses[0]
        if loss is not None and not low <= loss <= high:
            yield Fault(repeat.steps[0].location("loss"), f"from {low} to {high}", loss)


@rule("TRAIN-003", mode="throughput", kind=BENCHMARK)
def loss_falls(c: Context) -> Iterator[Fault]:
    """The loss per unit of work falls over the 110 steps, where they update the weights.

    Synthetic batches repeat, so that every model fits them. Batches of real data may all differ: AlexNet
    learns nothing yet in 110 steps, and its losses scatter around one value. There they may rise by three
    standard errors of the difference of the two means, but not be constant.
    """
    if not c.key.updates:
        return
    for repeat in c.repeats:
        columns = zip(repeat.steps, repeat.global_losses, repeat.global_units, strict=False)
        reported = [(step, loss, units) for step, loss, units in columns if loss is not None and units]
        if len(reported) <= 2 * _AVERAGED:
            continue
        per_unit = [loss / units for _, loss, units in reported]
        first, last = per_unit[:_AVERAGED], per_unit[-_AVERAGED:]
        start, end = (statistics.total(losses) / _AVERAGED for losses in (first, last))
        noise = 0.0
        if c.key.data == "real":
            rest = [loss - start for loss in first] + [loss - end for loss in last]
            # Not **, which raises OverflowError beyond the largest float.
            squares = statistics.total([one * one for one in rest])
            noise = _STANDARD_ERRORS * math.sqrt(squares / (_AVERAGED - 1) / _AVERAGED)
        if not end < start + noise:
            expected = f"less than {start + noise:.6g} (the first ten steps: {start:.6g})"
            yield Fault(reported[-1][0].location("loss"), expected, f"{end:.6g} over the last ten")


@rule("TRAIN-004")
def parameters_change(c: Context) -> Iterator[Fault]:
    """Updates change the weights in warm-up and window; other steps never do; other jobs have none."""
    for end in c.reports:
        stated = end["parameters"]
        if c.kind != BENCHMARK:
            if set(stated.values()) != {None}:
                yield Fault(end.location("parameters"), f"null in a {c.kind}", "digests")
            continue
        names = ("initial", "final") if c.mode == "quality" else ("initial", "step_10", "final")
        digests = [stated[name] for name in names]
        if None in digests:
            yield Fault(end.location("parameters"), f"digests: {', '.join(names)}", "null")
            continue
        wanted = len(names) if c.key.updates else 1
        if len(set(digests)) != wanted:
            location = end.location("parameters")
            yield Fault(location, f"{wanted} distinct digests in {c.key.work}", f"{len(set(digests))}")


@rule("TRAIN-005", kind=BENCHMARK)
def same_initial_parameters(c: Context) -> Iterator[Fault]:
    """Every rank starts every repeat from the frozen initial weights."""
    stored = c.key.phase == "infer" and c.key.precision in ("bf16", "fp16")
    first = c.reports[0]["parameters"]["initial"] if c.reports else None
    wanted = first if stored or c.header["initial_parameters"] is None else c.header["initial_parameters"]
    for report in c.reports:
        found = report["parameters"]["initial"]
        if found != wanted:
            yield Fault(report.location("parameters.initial"), wanted, found)


@header_rule("TRAIN-006", kind=BENCHMARK)
def initial_parameters_of_rules(c: HeaderContext) -> Iterator[Fault]:
    """The header's digest of the initial weights is that of the rules."""
    wanted = c.rules.initial_parameters(c.key, c.mode)
    found = c.header["initial_parameters"]
    if found != wanted:
        yield Fault("header, data.initial_parameters", wanted, found)
    elif wanted is None and c.division == "closed":
        yield Fault("header, data.initial_parameters", "a value in the rules, as closed requires", "null")


@rule("TRAIN-007", mode="throughput")
def gradients_alive(c: Context) -> Iterator[Fault]:
    """Gradient norms, where a pair reports them, are above zero; without updates each step reports one."""
    required = c.phase == "train" and not c.key.updates
    for repeat in c.repeats:
        norms = repeat.column("grad_norm")
        if None not in norms and min(map(float.fromhex, norms), default=1.0) > 0:
            continue
        for step, norm in zip(repeat.steps, norms, strict=True):
            if (norm is None and required) or (norm is not None and float.fromhex(norm) <= 0):
                yield Fault(step.location("grad_norm"), "above 0", norm)
                break


@rule("TRAIN-008", kind=BENCHMARK)
def few_steps_skipped(c: Context) -> Iterator[Fault]:
    """Training in fp16 reports its skipped steps, and skips few measured steps."""
    hyper = c.spec.hyperparameters(c.key.scale, c.key.variant)
    if c.key.phase != "train" or c.key.precision != "fp16" or "loss_scale" not in hyper:
        return
    skipped = steps = 0
    for end, report in [(end_of(repeat), report) for repeat in c.repeats for report in repeat.reports]:
        reported = report.data.get("loss_scale")
        if reported is None:
            yield Fault(
                report.location("loss_scale"), "the scale of the loss and the steps skipped", "not there"
            )
            continue
        skipped, steps = skipped + reported["skipped"], steps + end["steps"]
    most = c.rules.limit("skipped_share") * steps
    if c.mode == "throughput" and skipped > most:
        location = "rank_end, data.loss_scale.skipped of all repeats"
        yield Fault(location, f"at most {most:g} of {steps} measured steps without an update", skipped)


@rule("TRAIN-009", mode="throughput", kind=BENCHMARK)
def loss_in_envelope(c: Context) -> Iterator[Fault]:
    """The loss per unit of work starts and decreases within the bands of honest runs.

    The bands only apply to the hyperparameters of the specification (DIV-002).
    """
    if not c.key.updates or c.header["hyper"] != c.hyperparameters:
        return
    bands = envelope(c.workload_rules.get("loss_curve", ()), c.key)
    if bands is None:
        return  # TRAIN-012 rejects it in closed
    for repeat, losses, units in trained(c):
        for name, value in zip(("start", "middle", "end"), curve(losses, units), strict=True):
            low, high = (float(limit) for limit in bands[name])
            if not low <= value <= high:
                location = f"repeat {repeat.index}, loss per unit at the {name} of its steps"
                of = "" if name == "start" else " of that at the start"
                yield Fault(location, f"from {low:.6g} to {high:.6g}{of}", f"{value:.6g}")


@header_rule("TRAIN-012", kind=BENCHMARK)
def envelope_settled(c: HeaderContext) -> Iterator[Fault]:
    """In closed the rules have bands for the loss of the trained variant."""
    if c.division != "closed" or c.mode != "throughput" or not c.key.updates:
        return
    if envelope(c.workload_rules.get("loss_curve", ()), c.key) is None:
        found = f"none for {c.key.variant}, batch {c.key.batch}, {c.key.precision}, {c.key.data} data"
        yield Fault("header, data.key", "bands of the loss in the rules, as closed requires", found)


@rule("TRAIN-010", mode="throughput", kind=BENCHMARK)
def repeats_differ(c: Context) -> Iterator[Fault]:
    """Repeats that train on different batches have different losses and weights; so have ranks their losses.

    Ranks that exchange gradients end with the same weights, others not.
    """
    if c.key.phase != "train":
        return
    yield from _equal_ranks(c)
    for first, second in combinations(c.repeats, 2):
        if first.column("batch_digest") == second.column("batch_digest"):
            continue
        columns = {name: first.column(name) for name in ("loss", "grad_norm")}
        found = [
            name for name, values in columns.items() if values == second.column(name) and None not in values
        ]
        final = second.reports[0]["parameters"]["final"]
        if c.key.updates and final is not None and final == first.reports[0]["parameters"]["final"]:
            found.append("parameters.final")
        for name in found:
            location = f"repeat {second.index}, {name}"
            yield Fault(
                location,
                f"values other than those of repeat {first.index}, as the batches differ",
                "equal values",
            )


def _equal_ranks(c: Context) -> Iterator[Fault]:
    for repeat in c.repeats:
        for first, second in combinations(repeat.reports, 2):
            ranks = first["rank"], second["rank"]
            if repeat.column("batch_digest", ranks[0]) == repeat.column("batch_digest", ranks[1]):
                continue
            losses = [repeat.column("loss", rank) for rank in ranks]
            final = second["parameters"]["final"]
            equal = ["loss"] if losses[0] == losses[1] and None not in losses[0] else []
            if not c.key.exchanges and c.key.updates and final is not None:
                equal += ["parameters.final"] if final == first["parameters"]["final"] else []
            for name in equal:
                wanted = f"values other than those of rank {ranks[0]}, as the batches differ"
                yield Fault(f"repeat {repeat.index}, rank {ranks[1]}, {name}", wanted, "equal values")


@rule("TRAIN-011", mode="throughput")
def losses_vary(c: Context) -> Iterator[Fault]:
    """The loss differs from step to step; where the weights stay, from batch to batch."""
    for repeat, losses, _ in trained(c):
        least = int(c.rules.limit("distinct_losses"))
        if c.kind == BENCHMARK and not c.key.updates:  # synthetic images are one batch in every step
            least = min(least, len(set(repeat.column("batch_digest"))))
        distinct = len(set(losses))
        if distinct < least:
            location = f"repeat {repeat.index}, loss of its steps"
            yield Fault(location, f"at least {least} distinct losses", distinct)


@rule("INFER-001", mode="throughput")
def outputs_present(c: Context) -> Iterator[Fault]:
    """Every inference step has the digest of its output, every shard that of its files; others have none."""
    digests = c.phase != "train" and c.kind != LOAD
    for repeat in c.repeats:
        for step, found in zip(repeat.steps, repeat.column("output_digest"), strict=True):
            if (found is not None) != digests:
                wanted = "a digest" if digests else f"null in phase {c.phase}"
                yield Fault(step.location("output_digest"), wanted, found)
                break


@rule("INFER-002", mode="throughput")
def outputs_differ(c: Context) -> Iterator[Fault]:
    """Different batches have different outputs: the outputs were computed, not stored.

    The rule does not apply to batch 1, whose single scores in a short type may be equal by chance.
    """
    if c.subject.batch == 1:
        return
    for repeat in c.repeats:
        for rank in repeat.ranks:
            columns = (repeat.column(name, rank) for name in ("output_digest", "batch_digest"))
            reported = [pair for pair in zip(*columns, strict=True) if pair[0] is not None]
            outputs, batches = (
                (len(set(values)) for values in zip(*reported, strict=True)) if reported else (0, 0)
            )
            if outputs < batches:
                location = f"repeat {repeat.index}, rank {rank}, output_digest of its steps"
                yield Fault(location, f"{batches} distinct outputs, as many as batches", outputs)
