"""RUN: a run consists of five complete repeats, each with all its events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suite.checker.context import KEY, STRUCTURE, WITH_KEY, Context, Fault, end_of, rule, start_of
from suite.log.model import Event
from suite.log.units import count

MEASURED = ("timestamp_kind", "warmup_ns", "soak_steps", "tail_steps")  # only in throughput mode


@rule("RUN-001", KEY)
def completed(c: Context) -> Iterator[Fault]:
    """The run completed."""
    from suite.checker.verdict import reached

    if c.record.outcome not in ("completed", "out_of_memory"):
        yield Fault(c.record.events[-1].location(), "a completed run", reached(c.record))
    elif c.record.partial:
        yield Fault("folder", "the final name, without .partial", c.record.name)


@rule("RUN-002", STRUCTURE)
def out_of_memory(c: Context) -> Iterator[Fault]:
    """A run that ended out of memory is valid and has no score."""
    if c.record.outcome == "out_of_memory":
        abort = c.record.aborts[0]
        yield Fault(abort.location("code"), "a score", f"out of memory in phase {abort['phase']}")


@rule("RUN-003", STRUCTURE)
def all_repeats(c: Context) -> Iterator[Fault]:
    """The number of repeats is that of the rules, or the declared one."""
    wanted = c.counts["repeats"]
    found = len(c.record.repeats)
    if (c.record.completed and found != wanted) or found > wanted:
        yield Fault("run.jsonl", count(wanted, "repeat"), f"{found}")


@rule("RUN-004", STRUCTURE)
def repeat_parts(c: Context) -> Iterator[Fault]:
    """A completed repeat has facts of both sides, clocks and counters, steps or evaluations."""
    quality = c.mode == "quality"
    window = ["window_open", "window_close"]
    clocks = ["repeat_start", *([] if quality else window), "repeat_end"]
    for repeat in c.repeats:
        nodes = start_of(repeat)["nodes"]
        ranks = [str(rank) for rank in range(start_of(repeat)["world_size"])]
        counters = [event for event in repeat.telemetry if event["source"] == "counters"]
        parts = {
            "outside facts of nodes": (_each([""], nodes), _of(repeat.envs_of("outside"))),
            "inside facts of ranks": (ranks, [str(e.data.get("rank")) for e in repeat.envs_of("inside")]),
            "clock events": (_each(clocks, nodes), _of(repeat.clocks, "at")),
            "telemetry counters": (_each(window, nodes), _of(counters, "at")),
            "rank_end of ranks": (ranks, [str(event["rank"]) for event in repeat.reports]),
        }
        for name, (wanted, found) in parts.items():
            if sorted(found) != sorted(wanted):
                location = f"repeat {repeat.index}, {name}"
                yield Fault(location, ", ".join(wanted) + ", each once", ", ".join(found) or "none")
        stray = repeat.steps if quality else repeat.evaluations
        if stray:
            yield Fault(stray[0].location(), f"none in mode {c.mode}", f"{len(stray)} {stray[0].kind} events")


def _each(names: Sequence[str], nodes: int) -> list[str]:
    """Each of ``names`` for each node."""
    return [f"{name} of node {node}" for node in range(nodes) for name in names]


def _of(events: Sequence[Event], field: str = "") -> list[str]:
    """``field`` and node of each event, written as :func:`_each` writes them."""
    return [f"{event[field] if field else ''} of node {event['node']}" for event in events]


@rule("RUN-005", STRUCTURE)
def telemetry_positions(c: Context) -> Iterator[Fault]:
    """Counters are read at window start and end, samples taken in soak, window or telemetry tail."""
    allowed = {"counters": ("window_open", "window_close"), "sample": ("soak", "window", "tail")}
    for repeat in c.record.repeats:
        for event in repeat.telemetry:
            if event["at"] not in allowed[event["source"]]:
                wanted = " or ".join(allowed[event["source"]])
                yield Fault(event.location("at"), f"{wanted} for {event['source']}", event["at"])


@rule("RUN-006", STRUCTURE, mode="throughput")
def measured_fields(c: Context) -> Iterator[Fault]:
    """A throughput repeat has the measurements of a score: they are not null."""
    for repeat in c.repeats:
        if end_of(repeat)["units"] is None:
            yield Fault(end_of(repeat).location("units"), "a value in throughput mode", "null")
        for report in repeat.reports:
            for name in MEASURED:
                if report[name] is None:
                    yield Fault(report.location(name), "a value in throughput mode", "null")


@rule("RUN-007", STRUCTURE)
def one_world(c: Context) -> Iterator[Fault]:
    """Every repeat starts one rank for each device."""
    for repeat in c.record.repeats:
        start = start_of(repeat)
        if start["world_size"] != c.devices:
            yield Fault(start.location("world_size"), f"{c.devices}, the key's devices", start["world_size"])


@rule("RUN-009", mode="throughput", kind=WITH_KEY)
def telemetry_length(c: Context) -> Iterator[Fault]:
    """Every repeat has the soak of the settings; soaks and telemetry tail together last long enough."""
    settings = c.header["settings"]
    soak = settings.get("soak_ns")
    if type(soak) is not int:  # the schema does not restrict settings
        yield Fault("header, data.settings.soak_ns", "a number of ns", soak)
    for report in c.reports if type(soak) is int else ():
        if (report["soak_ns"] or 0) < soak:
            yield Fault(report.location("soak_ns"), f"at least {soak}", report["soak_ns"])
    wanted = c.rules.tail_ns if settings.get("telemetry") and c.reference else 0
    found = settings.get("tail_ns")
    if type(found) is not int or found < wanted:  # the schema does not restrict settings
        yield Fault("header, data.settings.tail_ns", f"at least {wanted}", found)
    if not (c.repeats and settings.get("telemetry") and c.reference):
        return
    first = c.repeats[0]
    at = first.clock_at
    passed = at["repeat_end"].mono_ns - at["window_close"].mono_ns
    if passed < wanted:
        yield Fault(
            at["repeat_end"].location("monotonic"), f"at least {wanted} ns after the window", f"{passed} ns"
        )
