"""TIME: step timestamps, windows, receipt times and clocks agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from functools import lru_cache
from itertools import pairwise
from operator import lt

from suite.checker.context import STRUCTURE, Context, Fault, end_of, rule, start_of
from suite.contract import BENCHMARK
from suite.log.model import Event

_NS = 1_000_000_000
_BEFORE = (
    "import_ns",
    "setup_ns",
    "compile_ns",
    "soak_ns",
    "warmup_ns",
)  # consecutive parts before the window
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - one spelling for every Python


@rule("TIME-001", STRUCTURE, mode="throughput")
def timestamps_increase(c: Context) -> Iterator[Fault]:
    """The timestamps of each phase increase strictly: statistics assume that every step takes time."""
    for repeat in c.repeats:
        for rank in repeat.ranks:
            for phase in ("warmup", "measured"):
                before, steps = 0, repeat.steps_of(rank, phase)
                timestamps = [step.data["step_end_ns"] for step in steps]
                if all(map(lt, (0, *timestamps), timestamps)):
                    continue
                for step in steps:
                    if step["step_end_ns"] <= before:
                        yield Fault(step.location("step_end_ns"), f"more than {before}", step["step_end_ns"])
                        break
                    before = step["step_end_ns"]


@rule("TIME-002", mode="throughput")
def timestamps_fill_the_window(c: Context) -> Iterator[Fault]:
    """A rank's window ends with its last timestamp and the final copy, except for host_dispatch."""
    for repeat in c.repeats:
        for report in repeat.reports:
            if report["timestamp_kind"] == "host_dispatch":
                continue
            window = report["window"]["ns"]
            slack = max(c.rules.limit("timestamps_relative") * window, c.rules.limit("timestamps_ns"))
            last = repeat.steps_of(report["rank"], "measured")[-1]["step_end_ns"]
            found = last + (report["window"]["collect_ns"] or 0)
            if abs(found - window) <= slack:
                continue
            yield Fault(
                report.location("window.ns"),
                f"{found} (last timestamp + collect_ns) within {int(slack)} ns",
                window,
            )


@rule("TIME-003")
def window_is_end_minus_start(c: Context) -> Iterator[Fault]:
    """Every window is its end minus its start, and positive."""
    for repeat in c.repeats:
        for event in (end_of(repeat), *repeat.reports):
            window = event["window"]
            wanted = window["close_ns"] - window["open_ns"]
            if window["ns"] != wanted or wanted <= 0:
                yield Fault(event.location("window.ns"), f"{wanted}, above 0", window["ns"])


@rule("TIME-004")
def receipt_encloses(c: Context) -> Iterator[Fault]:
    """The harness sent the start before window start, and received the end after window end."""
    for repeat in c.repeats:
        end = end_of(repeat)
        window, receipt = end["window"], end["receipt"]
        chain = [
            ("repeat_start", start_of(repeat).mono_ns),
            ("receipt.open_ns", receipt["open_ns"]),
            ("window.open_ns", window["open_ns"]),
            ("window.close_ns", window["close_ns"]),
            ("receipt.close_ns", receipt["close_ns"]),
            ("repeat_end", end.mono_ns),
        ]
        for (early, first), (late, second) in pairwise(chain):
            if first > second:
                yield Fault(end.location(late), f"at least {first} ({early})", second)


@rule("TIME-005")
def receipt_is_tight(c: Context) -> Iterator[Fault]:
    """The receipt times are close to window start and window end."""
    return _receipts_within(c, "receipt")


@rule("TIME-017", mode="throughput")
def receipts_near_window(c: Context) -> Iterator[Fault]:
    """The interval between the receipt times is the window plus the usual delay of the harness.

    TIME-005 allows for a loaded machine; a forger could scale steps and window within that allowance.
    """
    return _receipts_within(c, "receipt_usual")


def _receipts_within(c: Context, limit: str) -> Iterator[Fault]:
    for end in map(end_of, c.repeats):
        window, receipt = end["window"], end["receipt"]
        slack = c.rules.limit(f"{limit}_ns") + c.rules.limit(f"{limit}_relative") * window["ns"]
        found = (receipt["close_ns"] - receipt["open_ns"]) - window["ns"]
        if found > slack:
            yield Fault(end.location("receipt"), f"at most {int(slack)} ns beyond the window", f"{found} ns")


@rule("TIME-018", mode="throughput")
def clocks_near_receipts(c: Context) -> Iterator[Fault]:
    """The clock events at window start and end are as far apart as the receipt times, plus usual delays."""
    for repeat in c.repeats:
        at = repeat.clock_at
        receipt = end_of(repeat)["receipt"]
        span = receipt["close_ns"] - receipt["open_ns"]
        slack = c.rules.limit("clocks_usual_ns") + c.rules.limit("clocks_usual_relative") * span
        found = at["window_close"].mono_ns - at["window_open"].mono_ns - span
        if found > slack:
            location = at["window_close"].location("monotonic")
            yield Fault(location, f"at most {int(slack)} ns beyond the receipts", f"{found} ns")


@rule("TIME-006")
def events_in_time(c: Context) -> Iterator[Fault]:
    """Events were received in the order of the log."""
    for before, event in pairwise(c.record.events):
        if event.mono_ns < before.mono_ns:
            yield Fault(
                f"line {event.line} ({event.kind}), mono_ns", f"at least {before.mono_ns}", event.mono_ns
            )


@rule("TIME-007", mode="throughput")
def dispatch_in_window(c: Context) -> Iterator[Fault]:
    """Steps were dispatched in order and before their phase ended."""
    for repeat in c.repeats:
        for report in repeat.reports:
            for phase, limit in (("warmup", report["warmup_ns"]), ("measured", report["window"]["ns"])):
                before = 0
                for step in repeat.steps_of(report["rank"], phase):
                    now = step.data["dispatch_ns"]
                    if now is not None and not before <= now <= limit:
                        yield Fault(step.location("dispatch_ns"), f"from {before} to {limit}", now)
                        break
                    before = now or before


@rule("TIME-008")
def realtime_agrees(c: Context) -> Iterator[Fault]:
    """CLOCK_REALTIME advances as CLOCK_MONOTONIC does; only a flag, because it may be adjusted."""
    yield from _compare(c, "realtime", c.rules.limit("realtime_ppm"), c.rules.limit("clock_slack_ns"))


@rule("TIME-009")
def realtime_not_stretched(c: Context) -> Iterator[Fault]:
    """CLOCK_MONOTONIC was not stretched against CLOCK_REALTIME."""
    yield from _compare(c, "realtime", c.rules.limit("stretch_ppm"), c.rules.limit("stretch_slack_ns"))


@rule("TIME-010")
def raw_agrees(c: Context) -> Iterator[Fault]:
    """CLOCK_MONOTONIC_RAW advances as CLOCK_MONOTONIC does."""
    yield from _compare(c, "monotonic_raw", c.rules.limit("raw_ppm"), c.rules.limit("clock_slack_ns"))


def _compare(c: Context, name: str, ppm: float, slack_ns: float) -> Iterator[Fault]:
    for before, event in _clock_pairs(c):
        if event[name] is None or before[name] is None:
            continue
        passed = _ns(event["monotonic"]) - _ns(before["monotonic"])
        other = _ns(event[name]) - _ns(before[name])
        if abs(other - passed) > ppm * 1e-6 * abs(passed) + slack_ns:
            location = event.location(name)
            yield Fault(
                location, f"{passed} ns since line {before.line}, as the monotonic clock", f"{other} ns"
            )


@rule("TIME-011")
def clock_and_events(c: Context) -> Iterator[Fault]:
    """The monotonic clock of the clock events advances as the times of the log's lines do."""
    for before, event in _clock_pairs(c):
        passed = _ns(event["monotonic"]) - _ns(before["monotonic"])
        logged = event.mono_ns - before.mono_ns
        slack = c.rules.limit("stretch_ppm") * 1e-6 * abs(logged) + c.rules.limit("stretch_slack_ns")
        if abs(passed - logged) > slack:
            yield Fault(event.location("monotonic"), f"{logged} ns since line {before.line}", f"{passed} ns")


@rule("TIME-012")
def same_boot(c: Context) -> Iterator[Fault]:
    """The machine was not rebooted during the run."""
    for before, event in _clock_pairs(c):
        if event["boot"] != before["boot"]:
            yield Fault(event.location("boot"), before["boot"], event["boot"])


@rule("TIME-013")
def windows_apart(c: Context) -> Iterator[Fault]:
    """Repeats do not overlap."""
    for before, repeat in pairwise(c.repeats):
        first, second = end_of(before)["window"]["close_ns"], end_of(repeat)["window"]["open_ns"]
        if second <= first:
            yield Fault(end_of(repeat).location("window.open_ns"), f"more than {first}", second)


@rule("TIME-014", mode="throughput")
def closing_copy_is_small(c: Context) -> Iterator[Fault]:
    """The final copy to the host is short: no work is postponed to it."""
    for report in c.reports:
        most = max(c.rules.limit("collect_ns"), c.rules.limit("collect_share") * report["window"]["ns"])
        found = report["window"]["collect_ns"]
        if found is not None and found > most:
            yield Fault(report.location("window.collect_ns"), f"at most {int(most)}", found)


@rule("TIME-015", mode="throughput")
def timestamps_follow_dispatch(c: Context) -> Iterator[Fault]:
    """A device finishes a step after the host dispatched it."""
    slack = c.rules.limit("timestamps_ns")
    for repeat in c.repeats:
        for report in repeat.reports:
            if report["timestamp_kind"] != "device":
                continue
            for step in repeat.steps_of(report["rank"], "measured"):
                sent, timestamp = step.data["dispatch_ns"], step.data["step_end_ns"]
                if sent is not None and timestamp < sent - slack:
                    yield Fault(step.location("step_end_ns"), f"at least {sent} (dispatch_ns)", timestamp)
                    break


@rule("TIME-016")
def wall_and_events(c: Context) -> Iterator[Fault]:
    """The dates of the lines advance as their monotonic times do, and agree with the clock events."""
    first = c.record.header
    begin = _second_ns(first.wall[:19]) + int(first.wall[20:26]) * 1_000
    share, least = c.rules.limit("stretch_ppm") * 1e-6, c.rules.limit("stretch_slack_ns")
    limit, second, since = c.rules.limit("wall_ns"), "", 0
    for event in c.record.events:
        if event.wall[:19] != second:  # most lines share their second with the one before
            second = event.wall[:19]
            since = _second_ns(second)
        date = since + int(event.wall[20:26]) * 1_000
        passed, logged = date - begin, event.mono_ns - first.mono_ns
        if abs(passed - logged) > share * abs(logged) + least:
            yield Fault(_wall(event), f"{logged} ns after the first line", f"{passed} ns")
        if event.kind == "clock" and event["node"] == 0 and event["realtime"] is not None:
            apart = _ns(event["realtime"]) - date
            if abs(apart) > limit:
                yield Fault(_wall(event), "the date of data.realtime", f"{apart} ns from it")


def _wall(event: Event) -> str:
    return f"line {event.line} ({event.kind}), wall"


@lru_cache(maxsize=64)  # most lines share their second with the one before
def _second_ns(text: str) -> int:
    """UTC in ns since 1970 of the date and time ``text``; the schema guarantees its ISO format."""
    passed = datetime.fromisoformat(text + "+00:00") - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * _NS


def _clock_pairs(c: Context) -> Iterator[tuple[Event, Event]]:
    """(before, after) of each two successive clock triples of one node."""
    for node in range(max((start_of(repeat)["nodes"] for repeat in c.record.repeats), default=0)):
        yield from pairwise(event for event in c.record.all("clock") if event["node"] == node)


def _ns(pair: list[int]) -> int:
    return pair[0] * _NS + pair[1]


@rule("TIME-019", mode="throughput")
def clocks_near_window_in_most_repeats(c: Context) -> Iterator[Fault]:
    """In most repeats the clock events are as far apart as the window is long, plus the usual delay.

    TIME-017 and TIME-018 allow each repeat the delay of a loaded machine, by which a forger could shorten all
    windows. The median delay of five honest repeats is only large if most of them were delayed.
    """
    found = []
    for repeat in c.repeats:
        at = repeat.clock_at
        window = end_of(repeat)["window"]["ns"]
        slack = c.rules.limit("clocks_median_ns") + c.rules.limit("clocks_median_relative") * window
        apart = at["window_close"].mono_ns - at["window_open"].mono_ns - window
        found.append((apart - slack, apart, at["window_close"]))
    if len(found) < 3:
        return
    over, apart, event = sorted(found, key=lambda one: one[0])[len(found) // 2]
    if over > 0:
        wanted = f"at most {int(apart - over)} ns beyond the window, in most repeats"
        yield Fault(event.location("monotonic"), wanted, f"{apart} ns")


@rule("TIME-020", mode="throughput", kind=BENCHMARK)
def setup_fits_before_window(c: Context) -> Iterator[Fault]:
    """Set-up, soak and warm-up fit before the window, and input wait does not exceed it."""
    for repeat in c.repeats:
        at = repeat.clock_at
        whole = at["window_open"].mono_ns - start_of(repeat).mono_ns + int(c.rules.limit("clock_slack_ns"))
        for report in repeat.reports:
            parts = sum(report[name] or 0 for name in _BEFORE)
            if parts > whole:
                wanted = f"at most {whole} ns in all of {', '.join(_BEFORE)}"
                yield Fault(report.location("setup_ns"), wanted, f"{parts} ns")
            most, waited = report["window"]["ns"], report["input_wait_ns"] or 0
            if waited > most:
                yield Fault(report.location("input_wait_ns"), f"at most {most}, the window", waited)
