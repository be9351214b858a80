"""RANK: nodes, steps, windows and software of the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.checker.context import STRUCTURE, Context, Fault, end_of, rule, start_of
from suite.checker.environment import differences

# Facts that may differ between ranks: their cores and their device.
_PER_RANK = ("affinity", "framework.device")


@rule("RANK-001", STRUCTURE)
def ranks_on_nodes(c: Context) -> Iterator[Fault]:
    """Every node has the same number of ranks, in their order."""
    for repeat in c.record.repeats:
        start = start_of(repeat)
        size, nodes = start["world_size"], start["nodes"]
        if size % nodes:
            yield Fault(start.location("nodes"), f"a divisor of world_size, {size}", nodes)
            continue
        for event in (*repeat.envs_of("inside"), *repeat.reports):
            wanted = event.data.get("rank", 0) // (size // nodes)
            if event["node"] != wanted:
                yield Fault(event.location("node"), wanted, event["node"])


@rule("RANK-002")
def windows_inside(c: Context) -> Iterator[Fault]:
    """The repeat's window contains every rank's window; with one rank both are equal."""
    for repeat in c.repeats:
        whole = end_of(repeat)["window"]
        low, high = whole["open_ns"], whole["close_ns"]
        for report in repeat.reports:
            opened, closed = report["window"]["open_ns"], report["window"]["close_ns"]
            alone = len(repeat.reports) == 1
            if (opened, closed) != (low, high) if alone else not low <= opened < closed <= high:
                wanted = f"from {low} to {high}" if alone else f"between {low} and {high}"
                yield Fault(
                    report.location("window"), f"{wanted}, the repeat's window", f"{opened} to {closed}"
                )


@rule("RANK-003")
def windows_filled(c: Context) -> Iterator[Fault]:
    """Every rank's window fills nearly all of the repeat's: no rank waits long at start or end."""
    share = c.rules.limit("rank_window_share")
    for repeat in c.repeats:
        least = int(share * end_of(repeat)["window"]["ns"])
        for report in repeat.reports:
            if report["window"]["ns"] < least:
                found = f"{report['window']['ns']} ns"
                yield Fault(report.location("window.ns"), f"at least {least} ns ({share:.1%})", found)


@rule("RANK-004")
def equal_steps(c: Context) -> Iterator[Fault]:
    """All ranks ran the same number of soak steps and tail steps."""
    for repeat in c.repeats:
        first, *others = repeat.reports
        for report in others:
            for name in ("soak_steps", "tail_steps"):
                if report[name] != first[name]:
                    yield Fault(report.location(name), f"{first[name]}, as rank 0", report[name])


@rule("RANK-005", mode="throughput")
def batches_of_their_own(c: Context) -> Iterator[Fault]:
    """With real data, no two ranks have the same batch."""
    if not c.real:
        return
    for repeat in c.repeats:
        known: dict[str, int] = {}
        for rank in repeat.ranks if len(repeat.ranks) > 1 else ():
            for step in repeat.steps_of(rank):
                other = known.setdefault(step["batch_digest"], rank)
                if other != rank:
                    location = step.location("batch_digest")
                    yield Fault(
                        location, "a batch that no other rank has", f"{step['batch_digest']}, as rank {other}"
                    )
                    break


@rule("RANK-006")
def same_software(c: Context) -> Iterator[Fault]:
    """All ranks have the same software and settings."""
    for repeat in c.repeats:
        first, *others = repeat.envs_of("inside")
        for event in others:
            for path, wanted, found in differences(_shared(first["facts"]), _shared(event["facts"]), "facts"):
                yield Fault(event.location(path), f"{wanted}, as rank 0", found)


def _shared(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that must be equal on all ranks."""
    shared = {name: value for name, value in facts.items() if name not in _PER_RANK}
    described = shared.get("framework")
    if isinstance(described, Mapping):
        shared["framework"] = {
            name: value for name, value in described.items() if f"framework.{name}" not in _PER_RANK
        }
    return shared
