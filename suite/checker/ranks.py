"""RANK: nodes, steps, windows and software of the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.checker.context import (
    KEY,
    STRUCTURE,
    WITH_KEY,
    Context,
    Fault,
    HeaderContext,
    end_of,
    header_rule,
    rule,
    start_of,
)
from suite.checker.environment import differences
from suite.checker.time import most_repeats
from suite.contract import BENCHMARK, INDEPENDENT, node_of_rank
from suite.contract.traits import framework_names, traits_of
from suite.log.lateness import arrival_error_ns, arrivals_error_ns, clocks_error_ns, slow_repeats

# Facts that may differ between ranks: their cores and their device.
_PER_RANK = ("affinity", "framework.device")


@rule("RANK-001", STRUCTURE)
def ranks_on_nodes(c: Context) -> Iterator[Fault]:
    """Every node has the same number of ranks, in their order."""
    for repeat in c.record.repeats:
        start = start_of(repeat)
        size, nodes = start["world_size"], start["nodes"]
        if nodes != c.nodes or size % nodes:
            expected = f"{c.nodes}, the key's nodes and a divisor of world_size, {size}"
            yield Fault(start.location("nodes"), expected, nodes)
            continue
        for event in (*repeat.envs_of("inside"), *repeat.reports):
            wanted = node_of_rank(event.data.get("rank", 0), nodes, size)
            if event["node"] != wanted:
                yield Fault(event.location("node"), wanted, event["node"])


@rule("RANK-002")
def windows_inside(c: Context) -> Iterator[Fault]:
    """The repeat's window contains every rank's window; with one rank both are equal.

    The times of another node than node 0 are known within the error of its clock's offset.
    """
    for repeat in c.repeats:
        whole = end_of(repeat)["window"]
        for report in repeat.reports:
            error = repeat.clock_error_ns(report["node"]) or 0
            low, high = whole["open_ns"] - error, whole["close_ns"] + error
            opened, closed = report["window"]["open_ns"], report["window"]["close_ns"]
            alone = len(repeat.reports) == 1
            if (opened, closed) != (low, high) if alone else not low <= opened < closed <= high:
                wanted = f"from {low} to {high}" if alone else f"between {low} and {high}"
                yield Fault(
                    report.location("window"), f"{wanted}, the repeat's window", f"{opened} to {closed}"
                )


@rule("RANK-003")
def windows_filled(c: Context) -> Iterator[Fault]:
    """In most repeats the window of every rank that exchanges gradients fills nearly all of the repeat's.

    Ranks are released and read one after another, which takes up to 0.3 ms for four, however long the window.
    A host that is busy when a rank ends lengthens a single repeat, which costs throughput.
    Ranks that do not exchange end at different times: the last one ends the repeat's window.
    """
    if c.conversion is None and c.key.devices > 1 and not c.key.exchanges:
        return
    share, slack = c.rules.limit("rank_window_share"), c.rules.limit("rank_window_slack_ns")
    short: list[list[Fault]] = []  # of each repeat
    for repeat in c.repeats:
        whole = end_of(repeat)["window"]["ns"]
        least = int(min(share * whole, whole - slack))
        wanted = f"at least {least} ns ({share:.1%}, or all but {slack / 1e6} ms), in most repeats"
        short.append(
            [
                Fault(report.location("window.ns"), wanted, f"{report['window']['ns']} ns")
                for report in repeat.reports
                if report["window"]["ns"] < least
            ]
        )
    yield from most_repeats(short)


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
    """With real data, no two ranks have the same batch; a batch of one sample may recur (see DATA-003)."""
    if not c.real or c.subject.batch == 1:
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


@header_rule("RANK-007", KEY, kind=WITH_KEY)
def strategy_fits(c: HeaderContext) -> Iterator[Fault]:
    """One device and inference are independent; training on several devices can exchange as it says."""
    key = c.key
    able: tuple[str, ...] = (INDEPENDENT,)
    if key.devices > 1 and key.phase == "train" and key.framework in framework_names():
        able = (*traits_of(key.framework).strategies, INDEPENDENT)
    if key.strategy not in able:
        yield Fault(f"{c.location}.strategy", " or ".join(able), key.strategy)
    if key.devices % key.nodes:
        yield Fault(f"{c.location}.nodes", f"a divisor of devices, {key.devices}", key.nodes)


@header_rule("RANK-008", kind=BENCHMARK)
def training_exchanges(c: HeaderContext) -> Iterator[Fault]:
    """Training on several devices without an exchange is neither closed nor a submission."""
    key = c.key
    if key.phase == "train" and key.devices > 1 and not key.exchanges:
        for name, wanted in (("division", "open"), ("purpose", "trial")):
            if (found := c.header[name]) not in (wanted, "practice"):
                yield Fault(f"header, data.{name}", f"{wanted} with the strategy {INDEPENDENT}", found)


@rule("RANK-009", kind=WITH_KEY)
def collective_used(c: Context) -> Iterator[Fault]:
    """Ranks that exchange gradients report the collective of the settings, and buckets of their size if any.

    The settings of other ranks name no collective.
    """
    buckets = c.header["settings"].get("bucket_mib")
    wanted = c.header["settings"].get("collective")
    device = "cpu" if c.header["settings"].get("device") == "cpu" else "cuda"
    able = traits_of(c.key.framework).collectives.get(device, ()) if c.key.exchanges else (None,)
    if wanted not in able:
        yield Fault("header, data.settings.collective", " or ".join(map(str, able)), wanted)
        return
    for repeat in c.repeats:
        for event in repeat.envs_of("inside"):
            described = event["facts"].get("framework")
            exchange = described.get("exchange") if isinstance(described, Mapping) else None
            facts = exchange if isinstance(exchange, Mapping) else {}
            if (found := facts.get("backend")) != wanted:
                yield Fault(event.location("facts.framework.exchange.backend"), wanted, found)
            in_bytes = facts.get("bucket_bytes")
            if buckets is not None and (not isinstance(buckets, int) or in_bytes != buckets << 20):
                where = event.location("facts.framework.exchange.bucket_bytes")
                yield Fault(
                    where,
                    f"{buckets} MiB in bytes, as data.settings.bucket_mib of the header states",
                    in_bytes,
                )


@rule("RANK-010", kind=BENCHMARK)
def equal_replicas(c: Context) -> Iterator[Fault]:
    """Ranks that exchange gradients have the same weights, bit for bit, at step 10 and at the end."""
    if not c.key.exchanges:
        return
    for repeat in c.repeats:
        first, *others = repeat.reports
        for report in others:
            for name in ("step_10", "final"):  # TRAIN-005 compares the initial weights
                wanted = first["parameters"][name]
                if (found := report["parameters"][name]) != wanted:
                    yield Fault(report.location(f"parameters.{name}"), f"{wanted}, as rank 0", found)


@rule("RANK-020", mode="throughput", kind=BENCHMARK)
def no_slow_rank(c: Context) -> Iterator[Fault]:
    """No rank keeps the others waiting in nearly all steps of most repeats.

    In one repeat of a second a rank may be slow by chance: another process was on its cores.
    """
    share, least = c.rules.limit("slow_rank_share"), c.rules.limit("slow_rank_lateness")
    for rank, repeats in slow_repeats(c.repeats, share, least).items():
        if 2 * len(repeats) > len(c.repeats):
            wanted = f"last in at most {share:.0%} of the steps, or by at most {least:.1%} of a step (median)"
            late = [f"in {one.last_share:.0%} by {one.late_of_step:.1%}" for one in repeats.values()]
            location = f"repeats {', '.join(map(str, repeats))}, rank {rank}, exchange_ns"
            yield Fault(location, wanted, f"last {', '.join(late)}")


@rule("RANK-022", mode="throughput", kind=BENCHMARK)
def arrivals_recorded(c: Context) -> Iterator[Fault]:
    """PyTorch's ranks on GPUs record when they reach the exchange: without these times no rank looks slow.

    Other frameworks on GPUs have no clock for it, and a custom pair need not record it.
    """
    settings = c.header["settings"]
    records = c.key.framework == "pytorch" and settings.get("device") == "cuda"
    if not (records and c.key.exchanges) or settings.get("custom_pair") is not None:
        return
    for repeat in c.repeats:
        missing = next((step for step in repeat.steps if step["exchange_ns"] is None), None)
        if missing is not None:
            reason = end_of(repeat)["reasons"].get("step.exchange_ns")
            yield Fault(
                missing.location("exchange_ns"), "when the rank reached the exchange", f"null: {reason}"
            )


@rule("RANK-021", mode="throughput")
def arrivals_within_steps(c: Context) -> Iterator[Fault]:
    """A rank reaches the exchange of a step after its step before and before the end of the step itself."""
    exchanges = c.conversion is None and c.key.exchanges
    for repeat in c.repeats:
        for report in repeat.reports:
            slack = c.rules.limit("timestamps_ns") + arrival_error_ns(report) + repeat.drift_ns(report)
            for phase in ("warmup", "measured"):
                before = 0
                for step in repeat.steps_of(report["rank"], phase):
                    at, end = step.data["exchange_ns"], step.data["step_end_ns"]
                    if at is not None and not (exchanges and before - slack <= at <= end + slack):
                        wanted = f"from {before} to {end}, the step" if exchanges else "null: no exchange"
                        yield Fault(step.location("exchange_ns"), wanted, at)
                        break
                    before = end


@rule("RANK-023", mode="throughput", kind=BENCHMARK)
def exchange_precedes_ends(c: Context) -> Iterator[Fault]:
    """In most repeats no rank ends a step before every rank has reached the exchange of that step.

    An exchange gives each rank the gradients of all, so none can be ahead of another by a step.
    """
    if not c.key.exchanges:
        return
    early: list[list[Fault]] = []  # of each repeat
    for repeat in c.repeats:
        early.append([])
        if any(report["timestamp_kind"] == "host_dispatch" for report in repeat.reports):
            continue
        error = clocks_error_ns(repeat)
        slack = c.rules.limit("timestamps_ns") + max(map(repeat.drift_ns, repeat.reports))
        slack += arrivals_error_ns(repeat.reports) if error is None else error  # NODE-002 reports None
        rows = [repeat.steps_of(report["rank"], "measured") for report in repeat.reports]
        opened = [report["window"]["open_ns"] for report in repeat.reports]
        for steps in zip(*rows, strict=True):
            if any(step["exchange_ns"] is None for step in steps):
                break
            reached = max(at + step["exchange_ns"] for at, step in zip(opened, steps, strict=True))
            for at, step in zip(opened, steps, strict=True):
                if at + step["step_end_ns"] < reached - slack:
                    wanted = f"{reached - at} or more: the last rank reached the exchange then"
                    early[-1].append(Fault(step.location("step_end_ns"), wanted, step["step_end_ns"]))
            if early[-1]:
                break
    yield from most_repeats(early)


@rule("RANK-024", mode="throughput", kind=BENCHMARK)
def arrivals_precise(c: Context) -> Iterator[Fault]:
    """Clocks of arrivals at the exchange are known, and precise enough to name a slow rank."""
    share, most_ns = c.rules.limit("slow_rank_lateness"), c.rules.limit("arrival_bound_ns")
    for repeat in c.repeats if c.key.exchanges else ():
        for report in repeat.reports:
            first = repeat.steps_of(report["rank"], "measured")[0]
            if first["exchange_ns"] is not None and "exchange_clock" not in report.data:
                yield Fault(report.location("exchange_clock"), "the clock of exchange_ns", "none")
        step_ns = end_of(repeat)["window"]["ns"] / c.counts["measured_steps"]
        most, found = max(share * step_ns, most_ns), arrivals_error_ns(repeat.reports)
        if found > most:
            widest = max(repeat.reports, key=arrival_error_ns)
            wanted = f"at most {most:.0f} ns: the sum of the two largest bounds of all ranks"
            yield Fault(widest.location("exchange_clock.bound_ns"), wanted, f"{found} ns")
