"""What a run consists of: five whole repeats, each with its parts."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import STRUCTURE, WORDS, Context, Fault, end_of, rule, start_of
from suite.record.model import Repeat

MEASURED = ("mark_kind", "units", "warmup_ns", "soak_steps", "tail_steps")  # in throughput mode alone


@rule("RUN-001", WORDS)
def completed(c: Context) -> Iterator[Fault]:
    """The run came to its end."""
    from suite.checker.verdict import reached

    if c.record.outcome not in ("completed", "out_of_memory"):
        yield Fault(c.record.events[-1].place(), "a completed run", reached(c.record))
    elif c.record.partial:
        yield Fault("folder", "the final name, which a whole log gets", c.record.name)


@rule("RUN-002", STRUCTURE)
def out_of_memory(c: Context) -> Iterator[Fault]:
    """Out of memory is an outcome: a valid record without a score."""
    if c.record.outcome == "out_of_memory":
        abort = c.record.aborts[0]
        yield Fault(abort.place("code"), "a score", f"out of memory in phase {abort['phase']}")


@rule("RUN-003", STRUCTURE)
def all_repeats(c: Context) -> Iterator[Fault]:
    """There are exactly as many repeats as the rules demand."""
    wanted = c.rules.limits["modes"][c.mode]["repeats"]
    found = len(c.record.repeats)
    if (c.record.completed and found != wanted) or found > wanted:
        yield Fault("run.jsonl", f"{wanted} repeats", f"{found}")


@rule("RUN-004", STRUCTURE)
def repeat_parts(c: Context) -> Iterator[Fault]:
    """A completed repeat has facts of both sides, clocks and counters, steps or evaluations."""
    quality = c.mode == "quality"
    clocks = (
        ["repeat_start", "repeat_end"]
        if quality
        else ["repeat_start", "window_open", "window_close", "repeat_end"]
    )
    for repeat in c.repeats:
        parts = {
            "env sides": (["outside", "inside"], [event["side"] for event in repeat.envs]),
            "clock events": (clocks, [event["at"] for event in repeat.clocks]),
            "telemetry counters": (["window_open", "window_close"], _counters(repeat)),
        }
        for name, (wanted, found) in parts.items():
            if sorted(found) != sorted(wanted):
                place = f"repeat {repeat.index}, {name}"
                yield Fault(place, ", ".join(wanted) + ", each once", ", ".join(found) or "none")
        stray = repeat.steps if quality else repeat.evaluations
        if stray:
            yield Fault(stray[0].place(), f"none in mode {c.mode}", f"{len(stray)} {stray[0].kind} events")


def _counters(repeat: Repeat) -> list[str]:
    return [event["at"] for event in repeat.telemetry if event["source"] == "counters"]


@rule("RUN-005", STRUCTURE)
def telemetry_places(c: Context) -> Iterator[Fault]:
    """Counters stand at the window's edges, samples inside it or in the tail."""
    allowed = {"counters": ("window_open", "window_close"), "sample": ("window", "tail")}
    for repeat in c.record.repeats:
        for event in repeat.telemetry:
            if event["at"] not in allowed[event["source"]]:
                wanted = " or ".join(allowed[event["source"]])
                yield Fault(event.place("at"), f"{wanted} for {event['source']}", event["at"])


@rule("RUN-006", STRUCTURE, mode="throughput")
def measured_fields(c: Context) -> Iterator[Fault]:
    """A throughput repeat measured what a score needs: it is not null."""
    for repeat in c.repeats:
        end = repeat.end
        for name in MEASURED:
            if end is not None and end[name] is None:
                yield Fault(end.place(name), "a value in throughput mode", "null")


@rule("RUN-007", STRUCTURE)
def one_world(c: Context) -> Iterator[Fault]:
    """All repeats start the same number of workers, one for each device at most."""
    for repeat in c.record.repeats:
        start = start_of(repeat)
        first = start_of(c.record.repeats[0])["world_size"]
        if start["world_size"] != first or start["world_size"] > c.key.devices:
            wanted = f"{min(first, c.key.devices)} (devices: {c.key.devices})"
            yield Fault(start.place("world_size"), wanted, str(start["world_size"]))


@rule("STEP-001", STRUCTURE, mode="throughput")
def step_count(c: Context) -> Iterator[Fault]:
    """Every worker did exactly 10 + 100 steps."""
    counts = c.rules.limits["counts"]
    wanted = counts["warmup_steps"] + counts["measured_steps"]
    for repeat in c.repeats:
        for worker in range(start_of(repeat)["world_size"]):
            found = len(repeat.steps_of(worker))
            if found != wanted:
                yield Fault(f"repeat {repeat.index}, worker {worker}", f"{wanted} steps", str(found))
        strangers = set(repeat.workers) - set(range(start_of(repeat)["world_size"]))
        if strangers:
            yield Fault(f"repeat {repeat.index}", "workers below world_size", f"worker {min(strangers)}")
        if repeat.end is not None and repeat.end["steps"] != counts["measured_steps"]:
            yield Fault(repeat.end.place("steps"), str(counts["measured_steps"]), str(repeat.end["steps"]))


@rule("STEP-002", STRUCTURE, mode="throughput")
def step_order(c: Context) -> Iterator[Fault]:
    """The steps of a worker stand in their order, none twice."""
    for repeat in c.repeats:
        for worker in repeat.workers:
            numbers = repeat.column("step", worker)
            if numbers == tuple(range(len(numbers))):
                continue
            for number, step in enumerate(repeat.steps_of(worker)):
                if step["step"] != number:
                    yield Fault(step.place("step"), str(number), str(step["step"]))
                    return


@rule("STEP-003", STRUCTURE, mode="throughput")
def step_phase(c: Context) -> Iterator[Fault]:
    """The first ten steps are warm-up, the others are measured."""
    warmup = c.rules.limits["counts"]["warmup_steps"]
    for repeat in c.repeats:
        stated = repeat.column("phase")
        due = tuple(["warmup" if number < warmup else "measured" for number in repeat.column("step")])
        if stated == due:
            continue
        for step, phase, wanted in zip(repeat.steps, stated, due, strict=True):
            if phase != wanted:
                yield Fault(step.place("phase"), wanted, phase)


@rule("RUN-008", mode="throughput")
def soaked(c: Context) -> Iterator[Fault]:
    """Every repeat was soaked before its window for as long as the settings say."""
    wanted = 0 if c.converts else c.header["settings"].get("soak_ns")
    if type(wanted) is not int:  # settings are free in form
        yield Fault("header, data.settings.soak_ns", "a number of ns", str(wanted))
        return
    for repeat in c.repeats:
        found = end_of(repeat)["soak_ns"]
        if (found or 0) < wanted:
            yield Fault(end_of(repeat).place("soak_ns"), f"at least {wanted}", str(found))


@rule("RUN-009", mode="throughput")
def watched_after(c: Context) -> Iterator[Fault]:
    """After the first window the work went on for as long as the rules say: its power is read there."""
    settings = c.header["settings"]
    wanted = c.rules.limits["telemetry_tail_ns"] if settings.get("telemetry") and c.reference() else 0
    if settings.get("tail_ns") != wanted:
        yield Fault("header, data.settings.tail_ns", str(wanted), str(settings.get("tail_ns")))
    first = c.repeats[0] if c.repeats and not c.converts else None
    if first is None or not wanted:
        return
    at = first.clock_at
    found = at["repeat_end"].mono_ns - at["window_close"].mono_ns
    if found < wanted:
        yield Fault(
            at["repeat_end"].place("monotonic"), f"at least {wanted} ns after the window", f"{found} ns"
        )
    last = max((event["offset_ns"] for event in first.samples("tail")), default=0)
    sampled, least = last - end_of(first)["window"]["close_ns"], int(c.rules.limit("tail_share") * wanted)
    if sampled < least:
        place = end_of(first).place("tail_steps")
        yield Fault(place, f"samples until {least} ns after the window", f"until {max(sampled, 0)} ns")
