"""Checks the order of events, and that every null has a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from suite.log.finding import Defect
from suite.log.model import Event, Repeat
from suite.log.nulls import STEP_PREFIX, TELEMETRY_PREFIX, null_paths, unexplained

_OUTSIDE = ("header", "footer", "abort")  # kinds that may occur outside a repeat


def order_defects(events: Sequence[Event], partial: bool) -> Iterator[Defect]:
    """Defects in the sequence of kinds and repeats."""
    if events[0].kind != "header":
        yield Defect("LOG-012", events[0].location(), "the header first", events[0].kind)
        return
    for event in events[1:]:
        if event.kind == "header":
            yield Defect("LOG-012", event.location(), "one header, on the first line", "another header")
    yield from _footer(events, partial)
    yield from _repeats(events)


def _footer(events: Sequence[Event], partial: bool) -> Iterator[Defect]:
    last = events[-1]
    for event in events[:-1]:
        if event.kind == "footer":
            yield Defect(
                "LOG-017", event.location(), "the footer last", f"{len(events) - event.line} lines after it"
            )
    if last.kind != "footer":
        if not partial:
            yield Defect("LOG-017", last.location(), "a footer", f"the log ends in {last.kind}")
        return
    if last["events"] != len(events):
        yield Defect("LOG-017", last.location("events"), str(len(events)), str(last["events"]))
    aborts = [event for event in events if event.kind == "abort"]
    wanted = 0 if last["outcome"] == "completed" else 1
    if len(aborts) != wanted:
        yield Defect("LOG-016", last.location("outcome"), f"{wanted} abort events", f"{len(aborts)}")
    elif aborts and (aborts[0]["code"] == "out_of_memory") != (last["outcome"] == "out_of_memory"):
        yield Defect(
            "LOG-016", last.location("outcome"), f"the outcome of {aborts[0]['code']}", last["outcome"]
        )
    if (last["claims"] is None) != (last["outcome"] != "completed"):
        yield Defect(
            "LOG-016", last.location("claims"), "claims exactly if the run completed", last["outcome"]
        )


def _repeats(events: Sequence[Event]) -> Iterator[Defect]:
    """Repeats count from 0; each starts with repeat_start and ends with repeat_end before the next one."""
    current, is_open, aborted = -1, False, False
    for event in events:
        if event.kind == "step" and event.repeat == current and is_open and not aborted:
            continue  # nearly all events: tested first
        if event.kind in _OUTSIDE and event.repeat is None:
            aborted = aborted or event.kind == "abort"
            continue
        if aborted:
            yield Defect("LOG-016", event.location(), "nothing but the footer after an abort", event.kind)
            return
        if event.kind in ("header", "footer") or event.repeat is None:
            yield Defect(
                "LOG-016",
                event.location(),
                "repeat null in header and footer, a number in other events",
                event.kind,
            )
            return
        if event.kind == "repeat_start":
            if is_open or event.repeat != current + 1:
                expected = f"the end of repeat {current}" if is_open else f"the start of repeat {current + 1}"
                yield Defect("LOG-016", event.location(), expected, f"the start of repeat {event.repeat}")
                return
            current, is_open = event.repeat, True
            continue
        aborted = event.kind == "abort"
        if event.kind == "fingerprint" and event.repeat == current and not is_open:
            continue  # FING-001 checks which repeat it follows
        if event.repeat != current or not (is_open or aborted):
            expected = f"an event of repeat {current}" if is_open else f"the start of repeat {current + 1}"
            yield Defect("LOG-016", event.location(), expected, f"{event.kind} of repeat {event.repeat}")
            return
        is_open = is_open and event.kind != "repeat_end"
    if is_open and not aborted and events[-1].kind == "footer" and events[-1]["outcome"] == "completed":
        yield Defect("LOG-016", events[-1].location(), f"the end of repeat {current}", "the footer")


def null_defects(events: Sequence[Event], repeats: Mapping[int, Repeat]) -> Iterator[Defect]:
    """Defects for nulls without a reason and for reasons without a null."""
    for event in events:
        if event.kind == "step":  # steps have no reasons of their own: repeat_end explains their nulls
            continue
        if event.kind == "telemetry" and event.data["source"] == "sample":
            if event.data.get("reasons"):
                yield Defect(
                    "LOG-015",
                    event.location("reasons"),
                    "reasons only in the repeat's repeat_end",
                    "reasons in a sample",
                )
            continue
        yield from _reason_defects(event, *unexplained(event.data))
        if event.kind == "repeat_end" and event.repeat is not None:
            yield from _shared_reason_defects(event, repeats[event.repeat])


def _shared_reason_defects(end: Event, repeat: Repeat) -> Iterator[Defect]:
    """Defects in the reasons that repeat_end gives for the nulls of all steps and samples of a repeat."""
    nulls = {STEP_PREFIX + name for name in repeat.null_fields}
    for event in repeat.telemetry:
        if event.data["source"] == "sample":
            nulls.update(TELEMETRY_PREFIX + path for path in null_paths(event.data))
    reasons = {path for path in end["reasons"] if path.startswith((STEP_PREFIX, TELEMETRY_PREFIX))}
    yield from _reason_defects(end, nulls - reasons, reasons - nulls)


def _reason_defects(event: Event, missing: set[str], unneeded: set[str]) -> Iterator[Defect]:
    for path in sorted(missing):
        yield Defect(
            "LOG-015", event.location(path), f"a reason under data.reasons[{path!r}]", "null without a reason"
        )
    for path in sorted(unneeded):
        yield Defect(
            "LOG-015", event.location(f"reasons[{path!r}]"), f"null at {path}", "a reason without a null"
        )
