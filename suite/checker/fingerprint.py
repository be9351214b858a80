"""FING: the fingerprint is complete, and its losses are near those in the rules.

These rules do not show that the timed steps computed the same; only another run (a replay) can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from suite.checker.context import STRUCTURE, Context, Fault, HeaderContext, header_rule, rule
from suite.contract import BENCHMARK, WARMUP_STEPS
from suite.log.fingerprint import Pass, common_pass, demanded, own_pass
from suite.log.model import Event

_FIELDS = {"train": ("losses",), "infer": ("outputs", "output_norms")}  # one for each step


def _passes(c: Context) -> Iterator[tuple[Event, int, Pass]]:
    """(event, index, pass) of every pass of the fingerprint."""
    event = c.record.fingerprint
    if event is not None:
        for index, one in enumerate(event["passes"]):
            yield event, index, one


@rule("FING-001", STRUCTURE)
def fingerprint_position(c: Context) -> Iterator[Fault]:
    """A completed run has one fingerprint after repeat 0, if and only if the settings request it."""
    events = c.record.all("fingerprint")
    wanted = 1 if c.header["settings"].get("fingerprint") is True and c.fingerprinted else 0
    if len(events) > wanted or (c.record.completed and len(events) < wanted):
        yield Fault("run.jsonl", f"{wanted} fingerprint events", len(events))
    for event in events[:wanted]:
        if event.repeat != 0:
            yield Fault(event.location(), "the fingerprint after repeat 0", f"after repeat {event.repeat}")


@rule("FING-002", STRUCTURE, kind=BENCHMARK)
def passes_of_the_rules(c: Context) -> Iterator[Fault]:
    """The passes, and the number of values in each, are those of the rules, as later rules assume."""
    event = c.record.fingerprint
    if event is None or not c.fingerprinted:  # FING-001 rejects one that was not requested
        return
    wanted = [_shown(one) for one in c.rules.limits["fingerprint"]["passes"][c.key.phase]]
    found = [_shown(one) for one in event["passes"]]
    if found != wanted:
        yield Fault(event.location("passes"), "; ".join(wanted), "; ".join(found))
    for _, index, one in _passes(c):
        digests = ["initial"]
        if c.key.phase == "train":
            digests += ["step_10", "final"] if one["steps"] > WARMUP_STEPS else ["final"]
        shape = {"parameters": len(digests), **dict.fromkeys(_FIELDS[c.key.phase], int(one["steps"]))}
        if c.key.phase == "train":
            shape["gradient_norms"] = c.rules.limits["fingerprint"]["passes"]["train"][0]["gradients"]
        reported = {name: len(value) for name, value in one.items() if isinstance(value, (list, Mapping))}
        if reported != shape or sorted(one["parameters"]) != sorted(digests):
            yield Fault(event.location(f"passes.{index}"), _numbers(shape), _numbers(reported))


def _shown(one: Pass) -> str:
    return f"{one['name']} {one['precision']} {one['steps']} steps"


def _numbers(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(lengths.items()))


@rule("FING-003", kind=BENCHMARK)
def starts_from_frozen_weights(c: Context) -> Iterator[Fault]:
    """In fp32 the fingerprint starts from the frozen initial weights, as the repeats do."""
    wanted = c.header["initial_parameters"]
    for event, index, one in _passes(c):
        found = one["parameters"]["initial"]
        if wanted is not None and one["precision"] == "fp32" and found != wanted:
            yield Fault(event.location(f"passes.{index}.parameters.initial"), wanted, found)


@rule("FING-004", kind=BENCHMARK)
def fingerprint_trains(c: Context) -> Iterator[Fault]:
    """The fingerprint of a training changes the parameters, with gradients above zero."""
    for event, index, one in _passes(c):
        digests = list(one["parameters"].values())
        if len(set(digests)) != len(digests):
            location = event.location(f"passes.{index}.parameters")
            yield Fault(location, f"{len(digests)} distinct digests", f"{len(set(digests))}")
        for step, norm in enumerate(one.get("gradient_norms", ())):
            if float.fromhex(norm) <= 0:
                yield Fault(event.location(f"passes.{index}.gradient_norms.{step}"), "above 0", norm)
                break


@rule("FING-005", kind=BENCHMARK)
def losses_near_reference(c: Context) -> Iterator[Fault]:
    """The losses on the common batch are those in the rules, within rounding.

    Rounding errors grow from step to step, in some models until they dominate. The rules have a tolerance for
    each step; no step is compared from the one whose tolerance reaches half of the loss.
    """
    event = c.record.fingerprint
    one = None if event is None else common_pass(event)
    if event is None or one is None or c.key.phase != "train":
        return
    known = c.workload_rules["fingerprint"]
    reference, tolerances = (known[name].get(c.key.variant) for name in ("losses", "tolerances"))
    if reference is None or tolerances is None:
        return  # FING-008 rejects it in closed
    slacks = demanded(map(float, tolerances))
    for step, reported in enumerate(one["losses"][: len(reference)]):
        wanted, found, slack = float.fromhex(reference[step]), float.fromhex(reported), slacks[step]
        if not abs(found - wanted) <= slack * abs(wanted):
            location = event.location(f"passes.{event['passes'].index(one)}.losses.{step}")
            yield Fault(location, f"{wanted:.9g} within {slack:.0e} of it", f"{found:.9g}")
            return


@header_rule("FING-008", kind=BENCHMARK)
def losses_settled(c: HeaderContext) -> Iterator[Fault]:
    """In closed the rules have the losses with which the fingerprint of a training is compared."""
    if c.division != "closed" or not c.fingerprinted or c.key.phase != "train":
        return
    known = c.workload_rules["fingerprint"]
    for name in ("losses", "tolerances"):
        if known[name].get(c.key.variant) is None:
            location = f"rules, workloads/{c.key.workload}.json, fingerprint.{name}.{c.key.variant}"
            yield Fault(location, "a value in the rules, as closed requires", "null")


@rule("FING-006", kind=BENCHMARK)
def own_pass_differs(c: Context) -> Iterator[Fault]:
    """The pass on the run's own batch differs from the one on the common batch."""
    event = c.record.fingerprint
    first, second = (None, None) if event is None else (common_pass(event), own_pass(event))
    if event is None or first is None or second is None:
        return
    field = _FIELDS[c.key.phase][0]
    same = first[field][0] == second[field][0]
    tolerances = c.workload_rules["fingerprint"]["tolerances"].get(c.key.variant) or ()
    if same or (c.key.phase == "train" and _one_batch(first, second, demanded(map(float, tolerances)))):
        location = event.location(f"passes.{event['passes'].index(second)}.{field}")
        yield Fault(location, "values of the run's own batch", "those of the common batch")


def _one_batch(first: Pass, second: Pass, tolerances: Sequence[float]) -> bool:
    """Whether both passes have the same losses and first gradient norm, up to their precisions.

    The first loss alone does not decide: any two large batches of an untrained ncf agree to six digits
    (ln 2). With the first norm it does not either: one in 10^5 batches of ncf agrees in both. Later losses
    may differ by the ``tolerances`` of the rules, because rounding errors grow.
    """

    def near(name: str, step: int, tolerance: float) -> bool:
        values = (float.fromhex(one[name][step]) for one in (first, second))
        return math.isclose(*values, rel_tol=tolerance)

    later = enumerate(tolerances[1 : len(second["losses"])], start=1)
    return (
        near("losses", 0, 1e-6)
        and near("gradient_norms", 0, 1e-4)
        and all(near("losses", step, tolerance) for step, tolerance in later)
    )


@rule("FING-007", kind=BENCHMARK)
def same_container(c: Context) -> Iterator[Fault]:
    """The container image that computed the fingerprint is the one that ran the repeats."""
    event = c.record.fingerprint
    outside = c.record.repeats[0].env("outside") if c.record.repeats else None
    if event is None or outside is None:
        return
    wanted, found = (
        None if facts is None else facts["image"]
        for facts in (outside["facts"].get("container"), event["container"])
    )
    if found != wanted:
        yield Fault(event.location("container.image"), f"{wanted} as in repeat 0", found)
