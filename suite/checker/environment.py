"""The machine and the software: equal facts in every repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.checker.context import Context, Fault, end_of, framework_of, rule

# The facts that rules look at, by side: null with a reason where nobody can tell, never left out.
_TOLD = {
    "outside": ("accelerators", "container", "kernel"),
    "inside": ("framework", "image_label", "injected"),
}
# The type of activations, and of weights where inference stores them, by precision. TF32 has no type.
_COMPUTED = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@rule("ENV-001")
def facts_equal(c: Context) -> Iterator[Fault]:
    """The facts of either side are equal in all repeats."""
    for side in ("outside", "inside"):
        events = [event for repeat in c.record.repeats if (event := repeat.env(side)) is not None]
        for event in events[1:]:
            wanted, facts = dict(events[0]["facts"]), event["facts"]
            ended = any(
                repeat.index == event.repeat and repeat.end is not None for repeat in c.record.repeats
            )
            if not ended and facts.get("container") is None:
                wanted["container"] = None  # a worker that did not come up was not seen
            for path, first, found in _differences(wanted, facts, "facts"):
                yield Fault(event.place(path), f"{first} as in repeat {events[0].repeat}", str(found))


def _differences(first: Any, found: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if first == found:  # the usual case, and no need to look inside
        return
    if isinstance(first, Mapping) and isinstance(found, Mapping):
        for name in sorted({*first, *found}):
            yield from _differences(first.get(name), found.get(name), f"{path}.{name}")
    else:
        yield path, first, found


@rule("ENV-002", mode="throughput")
def threads_constant(c: Context) -> Iterator[Fault]:
    """No thread is born or dies inside the window."""
    for repeat in c.repeats:
        threads = end_of(repeat)["threads"]
        if threads is not None and threads["before"] != threads["after"]:
            place = end_of(repeat).place("threads.after")
            yield Fault(place, f"{threads['before']} as before", str(threads["after"]))


@rule("ENV-003")
def code_constant(c: Context) -> Iterator[Fault]:
    """The same modules of the suite were loaded in every repeat, and it is told which."""
    for repeat in c.repeats:
        wanted, found = end_of(c.repeats[0])["modules_digest"], end_of(repeat)["modules_digest"]
        if found != wanted or found is None:
            yield Fault(end_of(repeat).place("modules_digest"), str(wanted or "a digest"), str(found))


@rule("ENV-004")
def types_constant(c: Context) -> Iterator[Fault]:
    """The observed types are the same in every repeat."""
    for repeat in c.repeats:
        wanted, found = end_of(c.repeats[0])["dtypes"], end_of(repeat)["dtypes"]
        if found != wanted:
            yield Fault(end_of(repeat).place("dtypes"), str(wanted), str(found))


@rule("ENV-006")
def types_of_the_precision(c: Context) -> Iterator[Fault]:
    """What was observed is the precision of the key: mixed precision has fp32 masters, and TF32 is stated."""
    if c.converts:  # nothing is computed
        return
    computed = _COMPUTED[c.key.precision]
    train = c.key.phase == "train"
    wanted = {"activations": {computed}, "weights": {"float32"} if train else {"float32", computed}}
    if train:
        wanted["gradients"] = {"float32"}
    for repeat in c.repeats:
        found = end_of(repeat)["dtypes"] or {}
        for name, allowed in wanted.items():
            if found.get(name) not in allowed:
                place = end_of(repeat).place(f"dtypes.{name}")
                yield Fault(
                    place, f"{' or '.join(sorted(allowed))} in {c.key.precision}", str(found.get(name))
                )
        inside, described = framework_of(repeat)
        stated = described.get("tf32")
        if stated is not None and stated != (c.key.precision == "tf32"):
            place = inside.place("facts.framework.tf32")
            yield Fault(place, f"{c.key.precision == 'tf32'} in {c.key.precision}", str(stated))


@rule("ENV-005", mode="throughput")
def one_mark_kind(c: Context) -> Iterator[Fault]:
    """Marks are of one kind in all repeats."""
    for repeat in c.repeats:
        found = end_of(repeat)["mark_kind"]
        if found != c.record.mark_kind:
            yield Fault(end_of(repeat).place("mark_kind"), str(c.record.mark_kind), str(found))


@rule("ENV-007")
def nothing_injected(c: Context) -> Iterator[Fault]:
    """Nothing was put into the worker that it did not ask for: no library was loaded before all others."""
    for repeat in c.repeats[:1]:  # ENV-001 holds the others to it
        inside = repeat.env("inside")
        found = None if inside is None else inside["facts"].get("injected")
        if inside is not None and found:
            names = ", ".join(map(str, found)) if isinstance(found, list) else str(found)
            yield Fault(inside.place("facts.injected"), "nothing", names)


@rule("ENV-008")
def fine_clock(c: Context) -> Iterator[Fault]:
    """The kernel's clock does not count ticks of milliseconds."""
    for repeat in c.repeats[:1]:
        outside = repeat.env("outside")
        kernel = None if outside is None else outside["facts"].get("kernel")
        found = kernel.get("clocksource") if isinstance(kernel, Mapping) else None
        if outside is not None and found is not None and "jiffies" in str(found):
            yield Fault(
                outside.place("facts.kernel.clocksource"), "a hardware counter, such as tsc", str(found)
            )


@rule("ENV-009")
def facts_told(c: Context) -> Iterator[Fault]:
    """No fact that a rule looks at is left out: what is missing breaks no rule about what is there."""
    for repeat in c.record.repeats:
        for event in repeat.envs:
            for name in _TOLD[event["side"]]:
                if name not in event["facts"]:
                    yield Fault(event.place(f"facts.{name}"), "a fact, or null with its reason", "nothing")


@rule("ENV-010")
def computed_as_observed(c: Context) -> Iterator[Fault]:
    """The type that the framework says it computes in is the one that was observed."""
    for repeat in c.repeats:
        inside, described = framework_of(repeat)
        observed, found = (end_of(repeat)["dtypes"] or {}).get("activations"), described.get("compute_dtype")
        if None not in (observed, found) and found != observed:
            place = inside.place("facts.framework.compute_dtype")
            yield Fault(place, f"{observed}, as observed", str(found))


@rule("ENV-011", mode="throughput")
def marks_of_the_framework(c: Context) -> Iterator[Fault]:
    """The suite's pairs take the marks that their framework can: another kind would excuse from rules."""
    if c.converts or c.header["settings"].get("own_pair") is not None:
        return
    for repeat in c.repeats:
        device = framework_of(repeat)[1].get("device")
        if c.key.scenario == "single_stream" or device == "cpu":
            wanted = "host_completion"
        elif isinstance(device, str) and device.startswith("cuda"):
            wanted = "device" if c.key.framework == "pytorch" else "host_dispatch"
        else:
            continue
        if end_of(repeat)["mark_kind"] != wanted:
            place, found = end_of(repeat).place("mark_kind"), str(end_of(repeat)["mark_kind"])
            yield Fault(place, f"{wanted} in {c.key.framework} on {device}", found)


@rule("ENV-012")
def framework_told(c: Context) -> Iterator[Fault]:
    """The framework tells of itself, and ran on the device that was set."""
    if c.converts:  # no framework computes
        return
    for repeat in c.repeats:
        inside, described = framework_of(repeat)
        if not described:
            told = str(inside["facts"].get("framework"))
            yield Fault(inside.place("facts.framework"), "what the framework tells of itself", told)
            continue
        if not isinstance(described.get("version"), str):
            yield Fault(inside.place("facts.framework.version"), "a version", str(described.get("version")))
        wanted, found = c.header["settings"].get("device"), described.get("device")
        if wanted is None or found != wanted:
            place = inside.place("facts.framework.device")
            yield Fault(place, f"{wanted}, as in the header's settings.device", str(found))
