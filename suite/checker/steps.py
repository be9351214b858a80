"""The work of the steps: counted by the specification, never by the run."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import STRUCTURE, Context, Fault, end_of, rule


@rule("UNIT-001", STRUCTURE, mode="throughput")
def units_defined(c: Context) -> Iterator[Fault]:
    """The specification knows the units of this key's steps."""
    try:
        c.spec.units(c.key, 0)
    except (ValueError, LookupError) as error:
        yield Fault("header, data.key", "a key whose units of work the specification can count", str(error))


@rule("UNIT-002", mode="throughput")
def units_of_steps(c: Context) -> Iterator[Fault]:
    """Each step holds exactly the units that the specification demands, summed over the workers."""
    for repeat in c.repeats:
        wanted = c.spec.units(c.key, c.seed(repeat))
        found = [0] * len(wanted)
        for number, units in zip(repeat.column("step"), repeat.column("units"), strict=True):
            found[number] += units
        for number, (expected, actual) in enumerate(zip(wanted, found, strict=True)):
            if expected != actual:
                place = next(step for step in repeat.steps if step["step"] == number).place("units")
                yield Fault(place, str(expected), str(actual))
                break


@rule("UNIT-003", mode="throughput")
def units_of_repeat(c: Context) -> Iterator[Fault]:
    """The repeat's units are the sum over its measured steps."""
    for repeat in c.repeats:
        rows = zip(repeat.column("phase"), repeat.column("units"), strict=True)
        wanted = sum(units for phase, units in rows if phase == "measured")
        if end_of(repeat)["units"] != wanted:
            yield Fault(end_of(repeat).place("units"), str(wanted), str(end_of(repeat)["units"]))
