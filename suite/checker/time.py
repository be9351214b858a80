"""TIME: step timestamps, windows, receipt times and clocks agree with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from itertools import pairwise
from operator import lt

from suite.checker.context import STRUCTURE, WITH_KEY, Context, Fault, end_of, rule, start_of
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


def most_repeats(faults: Sequence[Sequence[Fault]]) -> list[Fault]:
    """All of ``faults``, by repeat, if more than half of the repeats have one; otherwise none."""
    found = [fault for repeat in faults for fault in repeat]
    return found if 2 * sum(map(bool, faults)) > len(faults) else []


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
    """A rank's window ends with its last timestamp and the final copy, except for host_dispatch.

    No window may end before them. One that ends later costs throughput: a busy host delays single repeats,
    work outside the timestamps delays most. The only repeat of a log may be later: a host whose one processor
    also loads data was 0.6 % late.
    """
    later = "timestamps_relative_alone" if len(c.repeats) == 1 else "timestamps_relative"
    late: list[list[Fault]] = []  # of each repeat
    for repeat in c.repeats:
        late.append([])
        for report in repeat.reports:
            if report["timestamp_kind"] == "host_dispatch":
                continue
            window = report["window"]["ns"]
            slack, found = _slack_ns(c, window), repeat.timestamps_end_ns(report)
            most = max(c.rules.limit(later) * window, slack)
            wanted = f"{found} (last timestamp + collect_ns) within"
            if found - window > slack:
                yield Fault(report.location("window.ns"), f"{wanted} {int(slack)} ns", window)
            elif window - found > most:
                wanted += f" {int(most)} ns, in most repeats"
                late[-1].append(Fault(report.location("window.ns"), wanted, window))
    yield from most_repeats(late)


def _slack_ns(c: Context, span_ns: int) -> float:
    """How far timestamps may be from a span of the host's clock."""
    return max(c.rules.limit("timestamps_relative") * span_ns, c.rules.limit("timestamps_ns"))


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
    """The harness sent the start before window start, and received the end after window end.

    It read its clocks before the one and after the other.
    """
    for repeat in c.repeats:
        end = end_of(repeat)
        window, receipt, at = end["window"], end["receipt"], repeat.clock_at
        chain = [
            ("repeat_start", start_of(repeat).mono_ns),
            ("receipt.open_ns", receipt["open_ns"]),
            ("window.open_ns", window["open_ns"]),
            ("window.close_ns", window["close_ns"]),
            ("receipt.close_ns", receipt["close_ns"]),
            ("repeat_end", end.mono_ns),
        ]
        if "window_open" in at:  # a quality run has no window
            chain.insert(1, ("clock.window_open", at["window_open"].mono_ns))
            chain.insert(-1, ("clock.window_close", at["window_close"].mono_ns))
        for (early, first), (late, second) in pairwise(chain):
            if first > second:
                yield Fault(end.location(late), f"at least {first} ({early})", second)


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
    """Steps were dispatched in order and before their phase ended; those of the warm-up ended within it."""
    for repeat in c.repeats:
        for report in repeat.reports:
            last, warmup_ns = repeat.steps_of(report["rank"], "warmup")[-1], report["warmup_ns"]
            # The clock of a device is compared with the host's.
            most = warmup_ns + (_slack_ns(c, warmup_ns) if report["timestamp_kind"] == "device" else 0)
            if last["step_end_ns"] > most:
                yield Fault(last.location("step_end_ns"), f"at most {int(most)}", last["step_end_ns"])
            for phase, limit in (("warmup", warmup_ns), ("measured", report["window"]["ns"])):
                before = 0
                for step in repeat.steps_of(report["rank"], phase):
                    now = step.data["dispatch_ns"]
                    if now is not None and not before <= now <= limit:
                        yield Fault(step.location("dispatch_ns"), f"from {before} to {limit}", now)
                        break
                    before = now or before


@rule("TIME-008")
def clocks_agree(c: Context) -> Iterator[Fault]:
    """The clocks of a node advance alike between two clock events.

    Only a flag: NTP sets and slews CLOCK_REALTIME, and a busy host delays one of the readings.
    """
    for before, event in _clock_pairs(c):
        passed = _ns(event["monotonic"]) - _ns(before["monotonic"])
        for name, limit in (("realtime", "realtime_ppm"), ("monotonic_raw", "raw_ppm")):
            if event[name] is None or before[name] is None:
                continue
            other = _ns(event[name]) - _ns(before[name])
            slack = c.rules.limit(limit) * 1e-6 * abs(passed) + c.rules.limit("clock_slack_ns")
            if abs(other - passed) > slack:
                wanted = f"{passed} ns since line {before.line}, as the monotonic clock"
                yield Fault(event.location(name), wanted, f"{other} ns")


@rule("TIME-009")
def clocks_agree_in_most_windows(c: Context) -> Iterator[Fault]:
    """In most repeats every clock advances in the window as the times of the log's lines do.

    A clock that was stretched, or times that were scaled afterwards, differ in all windows; a clock that was
    set, or a machine that was paused, differs in one. A quality repeat has no window and counts as a whole.
    """
    begin = "window_open" if c.mode == "throughput" else "repeat_start"
    pairs = [pair for pair in _clock_pairs(c) if pair[0]["at"] == begin]
    found = [fault for pair in pairs if (fault := _clocks_differ(c, *pair)) is not None]
    if len(pairs) > 2 and 2 * len(found) > len(pairs):
        yield found[0]


def _clocks_differ(c: Context, before: Event, event: Event) -> Fault | None:
    """The first clock that advanced otherwise between two clock events than the times of their lines."""
    logged = event.mono_ns - before.mono_ns
    slack = c.rules.limit("stretch_ppm") * 1e-6 * abs(logged) + c.rules.limit("clock_slack_ns")
    for name in ("monotonic", "monotonic_raw", "realtime"):
        if event[name] is not None and before[name] is not None:
            passed = _ns(event[name]) - _ns(before[name])
            if abs(passed - logged) > slack:
                wanted = f"{logged} ns since line {before.line}, in most repeats"
                return Fault(event.location(name), wanted, f"{passed} ns")
    return None


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
def dates_agree_with_clocks(c: Context) -> Iterator[Fault]:
    """The dates of the lines are those of the clock events.

    A clock event is logged at once, in most cases. Where the real-time clock was set between two clock
    events, the lines between them have either date.
    """
    slack, most = c.rules.limit("clock_slack_ns"), c.rules.limit("wall_ns")
    events, aheads = c.record.events, _aheads(c.record.events)
    apart, since = list[tuple[int, Event]](), 0
    for number, event in enumerate(events):
        triple = event.kind == "clock" and event["node"] == 0 and event["realtime"] is not None
        if triple:
            apart.append((abs(_ns(event["realtime"]) - event.mono_ns - aheads[number]), event))
        elif number < len(events) - 1:
            continue
        found = aheads[since : number + 1]
        low, high = min(found[0], found[-1]) - slack, max(found[0], found[-1]) + slack
        if not low <= min(found) <= max(found) <= high:
            at = next(i for i, ahead in enumerate(found) if not low <= ahead <= high)
            wanted = "a date between those of the clock events around it"
            off = min(abs(found[at] - low), abs(found[at] - high))
            yield Fault(_wall(events[since + at]), wanted, f"{off} ns outside")
        since = number
    apart.sort(key=lambda one: one[0])
    for limit, (off, event) in ((most, apart[-1]), (slack, apart[len(apart) // 2])) if apart else ():
        if off > limit:
            yield Fault(_wall(event), "the date of data.realtime", f"{off} ns from it")


def _aheads(events: Iterable[Event]) -> list[int]:
    """The date of each line in ns less its time since the first: constant unless a clock was set."""
    found, second, since = [], "", 0
    for event in events:
        if event.wall[:19] != second:  # most lines share their second with the one before
            second = event.wall[:19]
            since = _second_ns(second)
        found.append(since + int(event.wall[20:26]) * 1_000 - event.mono_ns)
    return found


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

    A busy host delays single repeats; a forger who shortens all windows delays the median, of two the smaller
    delay. The busy processes of a loader delay every repeat on real data.
    """
    delay = c.rules.limit("clocks_median_real_ns" if c.real else "clocks_median_ns")
    found = []
    for repeat in c.repeats:
        at = repeat.clock_at
        window = end_of(repeat)["window"]["ns"]
        slack = delay + c.rules.limit("clocks_median_relative") * window
        apart = at["window_close"].mono_ns - at["window_open"].mono_ns - window
        found.append((apart - slack, apart, at["window_close"]))
    if not found:
        return
    over, apart, event = sorted(found, key=lambda one: one[0])[(len(found) - 1) // 2]
    if over > 0:
        wanted = f"at most {int(apart - over)} ns beyond the window, in most repeats"
        yield Fault(event.location("monotonic"), wanted, f"{apart} ns")


@rule("TIME-020", mode="throughput", kind=WITH_KEY)
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


@rule("TIME-021", mode="throughput", kind=BENCHMARK)
def single_stream_waits(c: Context) -> Iterator[Fault]:
    """In single_stream a step ends with its output on the host: none is dispatched ahead or copied later."""
    if c.key.scenario != "single_stream":
        return
    for repeat in c.repeats:
        for report in repeat.reports:
            if (copied := report["window"]["collect_ns"]) != 0:
                yield Fault(report.location("window.collect_ns"), 0, copied)
            for step in repeat.steps_of(report["rank"], "measured"):
                if step["dispatch_ns"] != step["step_end_ns"]:
                    wanted = f"{step['step_end_ns']}, as step_end_ns"
                    yield Fault(step.location("dispatch_ns"), wanted, step["dispatch_ns"])
                    break
