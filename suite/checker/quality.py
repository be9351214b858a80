"""QUAL: evaluations, target and time of quality runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from suite.checker.context import STRUCTURE, Context, Fault, HeaderContext, end_of, header_rule, rule
from suite.checker.dataset import CUSTOM_DATASET
from suite.checker.repeats import MEASURED
from suite.contract import BENCHMARK
from suite.rules.targets import impossible, reaches

_SHAPES = 2  # of batches that faster_rcnn fills apart, each with an incomplete last one


@header_rule("QUAL-001", STRUCTURE, kind=BENCHMARK)
def target_exists(c: HeaderContext) -> Iterator[Fault]:
    """The rules have a target for this workload and variant."""
    if c.mode == "quality" and c.key.variant not in c.workload_rules["quality"]:
        known = " or ".join(c.workload_rules["quality"]) or "none"
        yield Fault("header, data.key.variant", f"a variant with a target ({known})", c.key.variant)


@rule("QUAL-002", mode="quality")
def target_of_rules(c: Context) -> Iterator[Fault]:
    """Metric and target of every evaluation are the rules'."""
    wanted = c.workload_rules["quality"][c.key.variant]
    for repeat in c.repeats:
        for event in repeat.evaluations:
            for name in ("metric", "target"):
                if event[name] != wanted[name]:
                    yield Fault(event.location(name), wanted[name], event[name])


@rule("QUAL-003", mode="quality")
def reached_is_true(c: Context) -> Iterator[Fault]:
    """``reached`` is true if and only if the value is as good as the target."""
    rules = c.workload_rules["quality"][c.key.variant]
    for repeat in c.repeats:
        for event in repeat.evaluations:
            wanted = reaches(float.fromhex(event["value"]), {**rules, "target": event["target"]})
            if event["reached"] != wanted:
                yield Fault(event.location("reached"), str(wanted).lower(), str(event["reached"]).lower())


@rule("QUAL-004", mode="quality")
def ends_at_target(c: Context) -> Iterator[Fault]:
    """A repeat ends at the first evaluation that reaches the target."""
    for repeat in c.repeats:
        events = repeat.evaluations
        if not events or not events[-1]["reached"]:
            yield Fault(f"repeat {repeat.index}", "a last evaluation that reaches the target", "not reached")
        for event in events[:-1]:
            if event["reached"]:
                yield Fault(event.location("reached"), "the last evaluation", "more evaluations after it")


@rule("QUAL-005", mode="quality")
def curve_in_order(c: Context) -> Iterator[Fault]:
    """There is one evaluation per epoch, in order, inside the window, within the allowed epochs."""
    most = c.workload_rules["quality"][c.key.variant]["max_epochs"]
    for repeat in c.repeats:
        events = repeat.evaluations
        every = events[0]["step"] if events else 0
        for epoch, event in enumerate(events, start=1):
            for name, wanted in (("epoch", epoch), ("step", epoch * every)):
                if event[name] != wanted:
                    yield Fault(event.location(name), wanted, event[name])
        for before, event in pairwise(events):
            if event["elapsed_ns"] <= before["elapsed_ns"]:
                yield Fault(
                    event.location("elapsed_ns"), f"after {before['elapsed_ns']}", event["elapsed_ns"]
                )
        if len(events) > most:
            yield Fault(f"repeat {repeat.index}", f"at most {most} epochs", len(events))
        last = repeat.evaluations[-1]["elapsed_ns"] if repeat.evaluations else 0
        span = end_of(repeat)["receipt"]["close_ns"] - end_of(repeat)["receipt"]["open_ns"]
        if last > span:
            yield Fault(repeat.evaluations[-1].location("elapsed_ns"), f"at most {span}", last)


@rule("QUAL-010", mode="quality")
def steps_of_an_epoch(c: Context) -> Iterator[Fault]:
    """An epoch has the steps of its dataset: nine in ten or more, because incomplete batches are dropped."""
    units = _units_of_epoch(c)
    if units is None:
        return
    most = units // max(c.spec.units(c.key, 0))
    least = max(1, int(c.rules.limit("epoch_share") * most) - _SHAPES)
    for repeat in c.repeats:
        for event in repeat.evaluations[:1]:  # QUAL-005 compares the others with it
            if not least <= event["step"] <= max(least, most):
                wanted = f"{least} to {most} steps of an epoch of {units} {c.spec.UNIT}s"
                yield Fault(event.location("step"), wanted, event["step"])


def _units_of_epoch(c: Context) -> int | None:
    """The units of work in an epoch; None where the rules do not know the dataset, or it was changed."""
    name = c.spec.DATASETS[c.key.scale]
    if c.header["dataset"]["kind"] == CUSTOM_DATASET or not c.rules.has("datasets", name):
        return None
    if c.header["hyper"].get("negatives") != c.hyperparameters.get("negatives"):
        return None  # DIV-002: each positive of ncf has as many negatives
    found: int | None = c.rules.dataset(name).get("epoch_units")
    return found


@rule("QUAL-006", mode="quality")
def within_bound_of_test_data(c: Context) -> Iterator[Fault]:
    """No evaluation is better than the bound of generated test data."""
    wanted = c.workload_rules["quality"][c.key.variant]
    for repeat in c.repeats:
        for event in repeat.evaluations:
            value = float.fromhex(event["value"])
            if impossible(value, wanted):
                yield Fault(event.location("value"), f"no better than {wanted['bound']}", f"{value:.6g}")


@rule("QUAL-007", mode="quality")
def steps_of_last_evaluation(c: Context) -> Iterator[Fault]:
    """The steps of a repeat are those of its last evaluation."""
    for repeat in c.repeats:
        last = repeat.evaluations[-1]["step"] if repeat.evaluations else 0
        if end_of(repeat)["steps"] != last:
            yield Fault(end_of(repeat).location("steps"), last, end_of(repeat)["steps"])


@rule("QUAL-008", mode="quality")
def logged_at_stated_time(c: Context) -> Iterator[Fault]:
    """The harness logs an evaluation at once: its time in the log is the one it states."""
    for repeat in c.repeats:
        opened = end_of(repeat)["receipt"]["open_ns"]
        for event in repeat.evaluations:
            elapsed = event["elapsed_ns"]
            slack = c.rules.limit("evaluation_ns") + c.rules.limit("evaluation_relative") * elapsed
            logged = event.mono_ns - opened
            if not 0 <= logged - elapsed <= slack:
                wanted = f"{logged} ns, when it was logged, or at most {int(slack)} ns less"
                yield Fault(event.location("elapsed_ns"), wanted, elapsed)


@rule("QUAL-009", mode="quality")
def no_throughput_fields(c: Context) -> Iterator[Fault]:
    """A quality repeat has no fields that only mode throughput measures."""
    for repeat in c.repeats:
        stated = [
            (end_of(repeat), "units"),
            *((report, name) for report in repeat.reports for name in MEASURED),
        ]
        for event, name in stated:
            if event[name] is not None:
                yield Fault(event.location(name), "null in mode quality", event[name])
