"""Time: marks, windows, receipts and clocks must tell one story."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from functools import lru_cache
from itertools import pairwise
from operator import lt
from typing import Any

from suite.checker.context import STRUCTURE, Context, Fault, end_of, rule, start_of
from suite.record.model import Event, Repeat

_NS = 1_000_000_000
_BEFORE = ("import_ns", "setup_ns", "compile_ns", "soak_ns", "warmup_ns")  # in this order, without overlap
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - one spelling for every Python


@rule("TIME-001", STRUCTURE, mode="throughput")
def marks_increase(c: Context) -> Iterator[Fault]:
    """The marks of each phase increase strictly: statistics take for granted that every step takes time."""
    for repeat in c.repeats:
        for worker in repeat.workers:
            for phase in ("warmup", "measured"):
                before, steps = 0, repeat.steps_of(worker, phase)
                marks = [step.data["mark_ns"] for step in steps]
                if all(map(lt, (0, *marks), marks)):
                    continue
                for step in steps:
                    if step["mark_ns"] <= before:
                        yield Fault(step.place("mark_ns"), f"more than {before}", str(step["mark_ns"]))
                        break
                    before = step["mark_ns"]


@rule("TIME-002", mode="throughput")
def marks_fill_the_window(c: Context) -> Iterator[Fault]:
    """Last mark and closing copy together are the window; marks of kind host_dispatch may fall short."""
    for repeat in c.repeats:
        end = end_of(repeat)
        if end["mark_kind"] == "host_dispatch":
            continue
        window = end["window"]["ns"]
        slack = max(c.rules.limit("marks_relative") * window, c.rules.limit("marks_ns"))
        last = max(repeat.steps_of(worker, "measured")[-1]["mark_ns"] for worker in repeat.workers)
        found = last + (end["window"]["collect_ns"] or 0)
        if abs(found - window) > slack:
            yield Fault(
                end.place("window.ns"),
                f"{found} (last mark + collect_ns) within {int(slack)} ns",
                str(window),
            )


@rule("TIME-003")
def window_is_its_edges(c: Context) -> Iterator[Fault]:
    """The window is the difference of its edges, and positive."""
    for repeat in c.repeats:
        window = end_of(repeat)["window"]
        wanted = window["close_ns"] - window["open_ns"]
        if window["ns"] != wanted or wanted <= 0:
            yield Fault(end_of(repeat).place("window.ns"), f"{wanted}, above 0", str(window["ns"]))


@rule("TIME-004")
def receipt_encloses(c: Context) -> Iterator[Fault]:
    """The harness sent the start before the window opened, and heard of its close afterwards."""
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
                yield Fault(end.place(late), f"at least {first} ({early})", str(second))


@rule("TIME-005")
def receipt_is_tight(c: Context) -> Iterator[Fault]:
    """Little time passes between the edges of the window and their receipts."""
    for repeat in c.repeats:
        end = end_of(repeat)
        window, receipt = end["window"], end["receipt"]
        slack = c.rules.limit("receipt_ns") + c.rules.limit("receipt_relative") * window["ns"]
        found = (receipt["close_ns"] - receipt["open_ns"]) - window["ns"]
        if found > slack:
            yield Fault(end.place("receipt"), f"at most {int(slack)} ns beyond the window", f"{found} ns")


@rule("TIME-017", mode="throughput")
def receipt_is_the_usual(c: Context) -> Iterator[Fault]:
    """The receipts are hardly longer than the window: the usual wait of a harness, not a share of the work.

    TIME-005 leaves room for a loaded machine, in which the times of steps and window could be scaled.
    """
    for repeat in c.repeats:
        end = end_of(repeat)
        window, receipt = end["window"], end["receipt"]
        slack = c.rules.limit("receipt_usual_ns") + c.rules.limit("receipt_usual_relative") * window["ns"]
        found = (receipt["close_ns"] - receipt["open_ns"]) - window["ns"]
        if found > slack:
            yield Fault(end.place("receipt"), f"at most {int(slack)} ns beyond the window", f"{found} ns")


@rule("TIME-018", mode="throughput")
def clocks_are_at_the_edges(c: Context) -> Iterator[Fault]:
    """The clocks that the harness read at the window's edges are hardly further apart than its receipts."""
    for repeat in c.repeats:
        at = repeat.clock_at
        receipt = end_of(repeat)["receipt"]
        span = receipt["close_ns"] - receipt["open_ns"]
        slack = c.rules.limit("clocks_usual_ns") + c.rules.limit("clocks_usual_relative") * span
        found = at["window_close"].mono_ns - at["window_open"].mono_ns - span
        if found > slack:
            place = at["window_close"].place("monotonic")
            yield Fault(place, f"at most {int(slack)} ns beyond the receipts", f"{found} ns")


@rule("TIME-006")
def events_in_time(c: Context) -> Iterator[Fault]:
    """Events were received in the order of the log."""
    for before, event in pairwise(c.record.events):
        if event.mono_ns < before.mono_ns:
            yield Fault(
                f"line {event.line} ({event.kind}), mono_ns", f"at least {before.mono_ns}", str(event.mono_ns)
            )


@rule("TIME-007", mode="throughput")
def dispatch_in_window(c: Context) -> Iterator[Fault]:
    """Steps were dispatched in order and before their phase ended."""
    for repeat in c.repeats:
        end = end_of(repeat)
        for worker in repeat.workers:
            for phase, limit in (("warmup", end["warmup_ns"]), ("measured", end["window"]["ns"])):
                before = 0
                for step in repeat.steps_of(worker, phase):
                    now = step.data["dispatch_ns"]
                    if now is not None and not before <= now <= limit:
                        yield Fault(step.place("dispatch_ns"), f"from {before} to {limit}", str(now))
                        break
                    before = now or before


@rule("TIME-008")
def realtime_agrees(c: Context) -> Iterator[Fault]:
    """CLOCK_REALTIME and CLOCK_MONOTONIC run alike (an adjusted clock is worth a look)."""
    yield from _compare(c, "realtime", c.rules.limit("realtime_ppm"), c.rules.limit("clock_slack_ns"))


@rule("TIME-009")
def realtime_not_stretched(c: Context) -> Iterator[Fault]:
    """CLOCK_MONOTONIC was not stretched against CLOCK_REALTIME."""
    yield from _compare(c, "realtime", c.rules.limit("stretch_ppm"), c.rules.limit("stretch_slack_ns"))


@rule("TIME-010")
def raw_agrees(c: Context) -> Iterator[Fault]:
    """CLOCK_MONOTONIC_RAW and CLOCK_MONOTONIC run alike."""
    yield from _compare(c, "monotonic_raw", c.rules.limit("raw_ppm"), c.rules.limit("clock_slack_ns"))


def _compare(c: Context, name: str, ppm: float, slack_ns: float) -> Iterator[Fault]:
    for before, event in _clock_pairs(c):
        if event[name] is None or before[name] is None:
            continue
        passed = _ns(event["monotonic"]) - _ns(before["monotonic"])
        other = _ns(event[name]) - _ns(before[name])
        if abs(other - passed) > ppm * 1e-6 * abs(passed) + slack_ns:
            place = event.place(name)
            yield Fault(place, f"{passed} ns since line {before.line}, as the monotonic clock", f"{other} ns")


@rule("TIME-011")
def clock_and_events(c: Context) -> Iterator[Fault]:
    """The monotonic clock of the triples passes as the log's own times do."""
    for before, event in _clock_pairs(c):
        passed = _ns(event["monotonic"]) - _ns(before["monotonic"])
        logged = event.mono_ns - before.mono_ns
        slack = c.rules.limit("stretch_ppm") * 1e-6 * abs(logged) + c.rules.limit("stretch_slack_ns")
        if abs(passed - logged) > slack:
            yield Fault(event.place("monotonic"), f"{logged} ns since line {before.line}", f"{passed} ns")


@rule("TIME-012")
def same_boot(c: Context) -> Iterator[Fault]:
    """The machine was not started anew during the run."""
    for before, event in _clock_pairs(c):
        if event["boot"] != before["boot"]:
            yield Fault(event.place("boot"), str(before["boot"]), str(event["boot"]))


@rule("TIME-013")
def windows_apart(c: Context) -> Iterator[Fault]:
    """Repeats do not overlap."""
    for before, repeat in pairwise(c.repeats):
        first, second = _window(before)["close_ns"], _window(repeat)["open_ns"]
        if second <= first:
            yield Fault(end_of(repeat).place("window.open_ns"), f"more than {first}", str(second))


@rule("TIME-014", mode="throughput")
def closing_copy_is_small(c: Context) -> Iterator[Fault]:
    """Work is done in the steps, not put off to the closing copy."""
    for repeat in c.repeats:
        end = end_of(repeat)
        most = max(c.rules.limit("collect_ns"), c.rules.limit("collect_share") * end["window"]["ns"])
        found = end["window"]["collect_ns"]
        if found is not None and found > most:
            yield Fault(end.place("window.collect_ns"), f"at most {int(most)}", str(found))


@rule("TIME-015", mode="throughput")
def work_follows_dispatch(c: Context) -> Iterator[Fault]:
    """A device reaches the mark of a step after that of the step was dispatched: its clock is the host's."""
    slack = c.rules.limit("marks_ns")
    for repeat in c.repeats:
        for worker in repeat.workers if end_of(repeat)["mark_kind"] == "device" else ():
            for step in repeat.steps_of(worker, "measured"):
                sent, mark = step.data["dispatch_ns"], step.data["mark_ns"]
                if sent is not None and mark < sent - slack:
                    yield Fault(step.place("mark_ns"), f"at least {sent} (dispatch_ns)", str(mark))
                    break


@rule("TIME-016")
def wall_and_events(c: Context) -> Iterator[Fault]:
    """The dates of the lines pass as the log's own times do, and are those of the clock triples."""
    first = c.record.header
    begin = _date_ns(first)
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
        if event.kind == "clock" and event["realtime"] is not None:
            apart = _ns(event["realtime"]) - date
            if abs(apart) > limit:
                yield Fault(_wall(event), "the date of data.realtime", f"{apart} ns from it")


def _wall(event: Event) -> str:
    return f"line {event.line} ({event.kind}), wall"


def _date_ns(event: Event) -> int:
    """UTC of a line in ns since 1970, from its ISO form with microseconds; the schema pins the form."""
    return _second_ns(event.wall[:19]) + int(event.wall[20:26]) * 1_000


@lru_cache(maxsize=64)  # most lines share their second with the one before
def _second_ns(text: str) -> int:
    passed = datetime.fromisoformat(text + "+00:00") - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * _NS


def _window(repeat: Repeat) -> Any:
    return end_of(repeat)["window"]


def _clock_pairs(c: Context) -> Iterator[tuple[Event, Event]]:
    return pairwise(c.record.all("clock"))


def _ns(pair: list[int]) -> int:
    return pair[0] * _NS + pair[1]


@rule("TIME-019", mode="throughput")
def clocks_usually_at_the_edges(c: Context) -> Iterator[Fault]:
    """In most repeats the clocks at the window's edges are hardly further apart than the window is long.

    TIME-017 and TIME-018 leave each repeat the room that a loaded machine takes now and then. All windows of
    a run could be shortened by as much; the median of five honest ones is late only where all are.
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
        yield Fault(event.place("monotonic"), wanted, f"{apart} ns")


@rule("TIME-020", mode="throughput")
def parts_fit_the_whole(c: Context) -> Iterator[Fault]:
    """What came before the window fits between the repeat's start and it, and the input took no longer."""
    if c.converts:  # its shards are made side by side
        return
    for repeat in c.repeats:
        end, at = end_of(repeat), repeat.clock_at
        whole = at["window_open"].mono_ns - start_of(repeat).mono_ns + int(c.rules.limit("clock_slack_ns"))
        parts = sum(end[name] or 0 for name in _BEFORE)
        if parts > whole:
            yield Fault(
                end.place("setup_ns"), f"at most {whole} ns in all of {', '.join(_BEFORE)}", f"{parts} ns"
            )
        most = end["window"]["ns"] * start_of(repeat)["world_size"]
        if (end["input_wait_ns"] or 0) > most:
            yield Fault(end.place("input_wait_ns"), f"at most {most}, the window", str(end["input_wait_ns"]))
