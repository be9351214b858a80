"""NODE: the nodes of a run are machines of one kind, and their clocks are known on that of node 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.checker.context import STRUCTURE, Context, Fault, rule
from suite.checker.environment import differences

_NS = 1_000_000_000


@rule("NODE-001")
def machines_alike(c: Context) -> Iterator[Fault]:
    """All nodes have the same container image, driver, devices and processor."""
    for repeat in c.repeats:
        first, *others = repeat.envs_of("outside")
        for event in others:
            pairs = kind_of_machine(first["facts"]), kind_of_machine(event["facts"])
            for path, wanted, found in differences(*pairs, "facts"):
                yield Fault(event.location(path), f"{wanted}, as node 0", found)


@rule("NODE-002", STRUCTURE)
def clocks_measured(c: Context) -> Iterator[Fault]:
    """The clock of every other node was compared with node 0's, within a bound, and agrees with the log."""
    most = int(c.rules.limit("clock_bound_ns"))
    slack = int(c.rules.limit("clock_slack_ns"))
    for repeat in c.record.repeats:
        for event in repeat.clocks:
            stated = [name for name in ("origin", "bound_ns") if name in event.data]
            if event["node"] == 0 or len(stated) < 2:
                if stated or event["node"]:
                    wanted = (
                        "origin and bound_ns" if event["node"] else "neither origin nor bound_ns on node 0"
                    )
                    yield Fault(event.location("origin"), wanted, " and ".join(stated) or "neither")
                continue
            if event["bound_ns"] > most:
                yield Fault(event.location("bound_ns"), f"at most {most}", event["bound_ns"])
            apart = _ns(event["monotonic"]) - _ns(event["origin"]) - event.mono_ns
            if abs(apart) > slack + event["bound_ns"]:
                location = event.location("origin")
                yield Fault(location, f"the line's mono_ns within {slack} ns", f"{apart} ns from it")


def kind_of_machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The outside facts that must be equal on all nodes: container image, driver, devices and processor."""
    accelerators, container, cpu = (
        found if isinstance(found := facts.get(name), Mapping) else {}
        for name in ("accelerators", "container", "cpu")
    )
    rows = accelerators.get("devices")
    devices = [row if isinstance(row, Mapping) else {} for row in (rows if isinstance(rows, list) else [])]
    return {
        "container": {name: container.get(name) for name in ("engine", "worth", "image")},
        "accelerators": {name: accelerators.get(name) for name in ("driver", "cuda")},
        "devices": [{name: row.get(name) for name in ("name", "memory_bytes")} for row in devices],
        "cpu": {"model": cpu.get("model")},
    }


def _ns(pair: list[int]) -> int:
    return pair[0] * _NS + pair[1]
