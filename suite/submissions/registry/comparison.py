"""The rules that compare all submissions: copies, nonces, attempts, devices in use twice, fingerprints.

A copy must not cause the rejection of the result that it copies. Which of two submissions was first is
therefore decided by the registry's receipts; names of folders and dates in logs can be chosen. Without a
receipt nobody knows: results of different submitters are then flagged, and people decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import count

from suite.submissions.registry.copies import copied_durations, shared_numbers, similar_noise
from suite.submissions.registry.model import Breach, Registry, parse_time
from suite.submissions.registry.population import population_breaches
from suite.submissions.registry.traces import Span, Trace

UNKNOWN = "the registry's receipts do not show which of the two was first"
_NEVER = datetime.max.replace(tzinfo=UTC)


class Order:
    """Which of two submissions was first, by the receipts in ``registry``."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def received(self, trace: Trace) -> datetime:
        """When the registry received this log from its submitter; the end of time where it did not."""
        nonce = self.registry.nonces.get(trace.nonce or "")
        if nonce is None or nonce.received_at is None or trace.digest != nonce.received:
            return _NEVER
        if trace.run_id != nonce.used_by or trace.submitter not in ("", nonce.submitter):
            return _NEVER
        return parse_time(nonce.received_at)

    def key(self, trace: Trace) -> tuple[bool, datetime, bool, bool, str]:
        """Sorts submissions: accepted ones, by receipt, then in the tree, then the signed ones first."""
        return trace.rejected, self.received(trace), not trace.submitter, not trace.signed, trace.location

    def known(self, earlier: Trace, later: Trace) -> bool:
        """Whether ``earlier``, which sorts first, is known to be first.

        Results of one submitter may be in any order: whichever is rejected, no other submitter is harmed.
        A result outside of the tree, and one that is rejected anyway, is later than a submission.
        """
        if later.rejected or later.submitter in ("", earlier.submitter):
            return True
        return self.received(earlier) < self.received(later)


def overlapping_runs(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Repeats on one device at the same time, by the clocks in the logs: of two runs the later one.

    Runs whose repeats were interleaved do not overlap. Dates can be chosen: of two submitters, or of a signed
    and an unsigned result, the breach is that of the one which ``traces`` has second.
    """
    known = list(traces)
    position = {id(trace): at for at, trace in enumerate(known)}
    # The latest end on each device, and the latest one of another run than that.
    last: dict[str, list[tuple[Span, Trace]]] = {}
    reported: set[tuple[str, str]] = set()
    spans = [(span, trace) for trace in known for span in trace.busy]
    for span, trace in sorted(spans, key=lambda one: (one[0][0], one[1].location)):
        for device in sorted(trace.devices):
            latest = last.get(device, [])
            for before_span, before in latest:
                between = (before.location, trace.location)
                if before is trace or span[0] >= before_span[1] or between in reported:
                    continue
                reported |= {between, between[::-1]}
                other_order = position[id(trace)] < position[id(before)]
                alike = before.submitter == trace.submitter and before.signed == trace.signed
                if other_order and not (alike and before.rejected == trace.rejected):
                    yield _overlap((span, trace), (before_span, before), device)
                else:
                    yield _overlap((before_span, before), (span, trace), device)
            ends = sorted([*latest, (span, trace)], key=lambda one: one[0][1], reverse=True)
            others = [one for one in ends if one[1] is not ends[0][1]]
            last[device] = [ends[0], *others[:1]]


def _overlap(earlier: tuple[Span, Trace], later: tuple[Span, Trace], device: str) -> Breach:
    (first, before), (second, after) = earlier, later
    where, between = f"{after.location}, device {device[:16]}", (before.location, after.location)
    if second[0] < first[0]:
        wanted = f"an end before {first[0].isoformat()}, when {before.location} started on this device"
        return Breach("REG-008", where, wanted, second[1].isoformat(), between)
    wanted = f"a start after {first[1].isoformat()}, when {before.location} ended on this device"
    return Breach("REG-008", where, wanted, second[0].isoformat(), between)


def reused_nonces(traces: Iterable[Trace], registry: Registry) -> Iterator[Breach]:
    """A nonce used by two submissions: the first is of the submitter to whom the registry issued it."""

    def of_another(trace: Trace) -> bool:
        nonce = registry.nonces.get(trace.nonce or "")
        return nonce is None or nonce.submitter != trace.submitter

    first: dict[str, Trace] = {}
    for trace in sorted(traces, key=of_another):
        if trace.nonce is None:
            continue
        before = first.setdefault(trace.nonce, trace)
        if before is not trace:
            where = f"{trace.location}, header, data.nonce"
            # Of two submitters the registry knows which may use it.
            between = (before.location, trace.location) if of_another(before) else None
            yield Breach(
                "REG-003", where, "a nonce that no other run used", f"that of {before.location}", between
            )


def uncounted_attempts(traces: Iterable[Trace], registry: Registry) -> Iterator[Breach]:
    """Gaps in the ledger of attempts, and submission runs that are missing from it."""
    for benchmark, counted in registry.attempts.items():
        missing = next(number for number in count(1) if number not in counted)
        if missing < max(counted):
            where = (
                f"registry, attempts.json, {benchmark.submitter} {benchmark.system} {benchmark.digest[:16]}"
            )
            yield Breach("REG-006", where, f"attempts 1 to {max(counted)}", f"none with number {missing}")
    for trace in traces:
        found = registry.attempts.get(trace.benchmark, {}).get(trace.attempt)
        if trace.counted and found != trace.run_id:
            wanted = f"attempt {trace.attempt} of this benchmark in the registry's attempts.json"
            yield Breach("REG-006", f"{trace.location}, header, data.attempt", wanted, found or "none")


def fingerprint_breaches(traces: Iterable[Trace]) -> Iterator[Breach]:
    """Different fingerprints within one class, or one run's own fingerprint in two submissions."""
    equal: dict[str, Trace] = {}
    owners: dict[str, Trace] = {}
    for trace in traces:
        if trace.bitwise is not None and trace.common is not None:
            first = equal.setdefault(trace.bitwise, trace)
            if first.common != trace.common:
                where = f"{trace.location}, fingerprint, pass common"
                wanted = f"the bits of {first.location}, a run of the same class"
                yield Breach("REG-010", where, wanted, "other bits", (first.location, trace.location))
        if trace.own is not None and owners.setdefault(trace.own, trace) is not trace:
            where = f"{trace.location}, fingerprint, pass own"
            other = owners[trace.own].location
            between = (other, trace.location)
            yield Breach("REG-011", where, "numbers unique to this run", f"those of {other}", between)


def tree_breaches(traces: Iterable[Trace], registry: Registry) -> list[Breach]:
    """The breaches of all rules that compare submissions or read the ledger.

    Where two submitters' results are alike and no receipt shows which was first, the breach is a flag.
    """
    order = Order(registry)
    known = sorted(traces, key=order.key)
    by_location = {trace.location: trace for trace in known}
    found = [
        *reused_nonces(known, registry),
        *uncounted_attempts(known, registry),
        *copied_durations(known),
        *similar_noise(known),
        *shared_numbers(known),
        *overlapping_runs(known),
        *fingerprint_breaches(known),
        *population_breaches(known, registry),
    ]
    return [_flagged_if_unknown(breach, by_location, order) for breach in found]


def _flagged_if_unknown(breach: Breach, traces: Mapping[str, Trace], order: Order) -> Breach:
    if breach.between is None or order.known(*(traces[one] for one in breach.between)):
        return breach
    return breach._replace(expected=f"{breach.expected}; {UNKNOWN}", severity="flag")
