"""STEP and UNIT: every rank ran all steps in order, and each step has the specified units of work."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import STRUCTURE, WITH_KEY, Context, Fault, end_of, rule, start_of


@rule("STEP-001", STRUCTURE, mode="throughput")
def step_count(c: Context) -> Iterator[Fault]:
    """Every rank ran exactly 10 + 100 steps, or as many as the header declares."""
    counts = c.counts
    wanted = counts["warmup_steps"] + counts["measured_steps"]
    for repeat in c.repeats:
        for rank in range(start_of(repeat)["world_size"]):
            found = len(repeat.steps_of(rank))
            if found != wanted:
                yield Fault(f"repeat {repeat.index}, rank {rank}", f"{wanted} steps", found)
        unknown = set(repeat.ranks) - set(range(start_of(repeat)["world_size"]))
        if unknown:
            yield Fault(f"repeat {repeat.index}", "ranks below world_size", f"rank {min(unknown)}")
        if repeat.end is not None and repeat.end["steps"] != counts["measured_steps"]:
            yield Fault(repeat.end.location("steps"), counts["measured_steps"], repeat.end["steps"])


@rule("STEP-002", STRUCTURE, mode="throughput")
def step_order(c: Context) -> Iterator[Fault]:
    """The steps of a rank are in order, without duplicates: ten of warm-up, then the measured ones."""
    warmup = c.rules.limits["counts"]["warmup_steps"]
    for repeat in c.repeats:
        for rank in repeat.ranks:
            numbers, phases = repeat.column("step", rank), repeat.column("phase", rank)
            wanted = tuple(["warmup" if number < warmup else "measured" for number in numbers])
            if numbers == tuple(range(len(numbers))) and phases == wanted:
                continue
            for number, step in enumerate(repeat.steps_of(rank)):
                if step["step"] != number:
                    yield Fault(step.location("step"), number, step["step"])
                    return
                if step["phase"] != wanted[number]:
                    yield Fault(step.location("phase"), wanted[number], step["phase"])


@rule("UNIT-001", STRUCTURE, mode="throughput", kind=WITH_KEY)
def units_defined(c: Context) -> Iterator[Fault]:
    """The specification defines the units of this key's steps."""
    try:
        c.spec.units(c.key.of_batches, 0)
    except (ValueError, LookupError) as error:
        yield Fault("header, data.key", "a key whose units of work the specification can count", error)


@rule("UNIT-002", mode="throughput")
def units_of_steps(c: Context) -> Iterator[Fault]:
    """Each step has, summed over the ranks, exactly the units of the specification; no rank has none."""
    for repeat in c.repeats:
        if min(repeat.column("units")) < 1:
            idle = next(step for step in repeat.steps if step["units"] < 1)
            yield Fault(idle.location("units"), "1 or more", idle["units"])
            continue
        wanted = c.units(repeat)
        found = [0] * len(wanted)
        for number, units in zip(repeat.column("step"), repeat.column("units"), strict=True):
            found[number] += units
        for number, (expected, actual) in enumerate(zip(wanted, found, strict=True)):
            if expected != actual:
                location = next(step for step in repeat.steps if step["step"] == number).location("units")
                yield Fault(location, expected, actual)
                break


@rule("UNIT-003", mode="throughput")
def units_of_repeat(c: Context) -> Iterator[Fault]:
    """The repeat's units are the sum over its measured steps."""
    for repeat in c.repeats:
        rows = zip(repeat.column("phase"), repeat.column("units"), strict=True)
        wanted = sum(units for phase, units in rows if phase == "measured")
        if end_of(repeat)["units"] != wanted:
            yield Fault(end_of(repeat).location("units"), wanted, end_of(repeat)["units"])
