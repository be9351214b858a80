"""Parses the bytes of a log and checks canonical lines, hash chain and numbering."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import orjson

from suite.log.canonical import MAX_DEPTH, MAX_EVENTS, MAX_LINE, ZERO, NotCanonicalError, examine, reencode
from suite.log.finding import Defect, RecordError

MAX_DEFECTS = 50
KINDS = (
    "header", "env", "repeat_start", "clock", "telemetry", "step", "rank_end", "exchange_sweep", "repeat_end",
    "fingerprint", "evaluation", "abort", "footer",
)  # fmt: skip


def parse(data: bytes, partial: bool) -> list[dict[str, Any]]:
    """The parsed lines (envelopes) of a log, in order; the schemas are not yet applied.

    The last line of a ``partial`` log may be incomplete, because its writer was killed; it is left out.
    Raises RecordError with up to 50 defects in canonical bytes, chain and numbering.
    """
    if (count := data.count(b"\n")) > MAX_EVENTS:  # before the split: each line takes sixty bytes by itself
        raise RecordError([Defect("LOG-003", "run.jsonl", f"at most {MAX_EVENTS} events", str(count))])
    lines = data.split(b"\n")
    rest = lines.pop()
    if rest and not partial:
        location = f"line {len(lines) + 1}"
        raise RecordError(
            [Defect("LOG-009", location, "a line that ends in LF", f"{len(rest)} bytes without LF")]
        )
    if not lines:
        raise RecordError([Defect("LOG-012", "line 1", "a header", "an empty log")])
    events: list[dict[str, Any]] = []
    defects: list[Defect] = []
    previous = ZERO
    for number, line in enumerate(lines, start=1):
        try:
            event = parse_line(line, f"line {number}")
            seq = event.get("seq")
            if event.get("prev") != previous or seq != number - 1 or type(seq) is not int:
                raise _misnumbered(event, number, previous)
        except RecordError as error:
            defects += error.defects
            if len(defects) >= MAX_DEFECTS:
                break
        else:
            events.append(event)
        previous = sha256(line + b"\n").hexdigest()
    if defects:
        raise RecordError(defects)
    return events


def rules_version(envelope: dict[str, Any]) -> object:
    """The rules version that the first line names, unchecked: callers look it up among the known versions."""
    data = envelope.get("data")
    rules = data.get("rules") if isinstance(data, dict) else None
    return rules.get("version") if isinstance(rules, dict) else None


def parse_line(line: bytes, location: str) -> dict[str, Any]:
    """The object in one line (without LF); RecordError names the first rule that the line breaks."""
    if len(line) > MAX_LINE:
        raise _error("LOG-003", location, f"at most {MAX_LINE} bytes a line", str(len(line)))
    try:
        event = orjson.loads(line)
        canonical = reencode(event) == line
    except (orjson.JSONDecodeError, TypeError):
        raise _diagnosis(line, location) from None
    if not canonical:
        raise _diagnosis(line, location)
    try:
        examine(event, line)
    except NotCanonicalError as error:
        raise _not_allowed(str(error), location) from None
    if not isinstance(event, dict):
        raise _error("LOG-004", location, "a JSON object", type(event).__name__)
    return event


def _not_allowed(message: str, location: str) -> RecordError:
    if "float" in message:
        return _error("LOG-008", location, "integers, or numbers in strings", message)
    if "control" in message:
        return _error("LOG-018", location, "strings without control characters", message)
    if "at most" in message or "deeper" in message:
        return _error("LOG-003", location, "sizes within the caps", message)
    return _error("LOG-007", location, "canonical JSON", message)


def _misnumbered(event: dict[str, Any], number: int, previous: str) -> RecordError:
    location, seq = f"line {number}", event.get("seq")
    if type(seq) is not int or seq != number - 1:
        return _error("LOG-011", location, f"seq {number - 1}", f"seq {seq}")
    return _error("LOG-010", location, f"prev {previous}", f"prev {event.get('prev')}")


class _StrictError(ValueError):
    """Raised inside the decoder of :func:`_diagnosis`; ``args`` are the rule, expected and actual."""


def _diagnosis(line: bytes, location: str) -> RecordError:
    """Why a line is not canonical; the decoder of the standard library is slow but reports the reason."""
    if line.count(b"{") + line.count(b"[") > 4 * MAX_DEPTH:
        return _error("LOG-003", location, f"nesting of at most {MAX_DEPTH}", "far more brackets")
    try:
        json.loads(
            line.decode("utf-8"),
            object_pairs_hook=_pairs,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
        )
    except _StrictError as error:
        rule, expected, actual = error.args
        return _error(rule, location, expected, actual)
    except (ValueError, RecursionError) as error:
        return _error("LOG-004", location, "a JSON object in UTF-8", str(error))
    return _error(
        "LOG-007",
        location,
        "canonical JSON: keys in ASCII order, no spaces, shortest escapes",
        "another encoding",
    )


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _StrictError("LOG-006", "every key once", f"{twice!r} again")
    return found


def _constant(text: str) -> None:
    raise _StrictError("LOG-005", "finite numbers", text)


def _float(text: str) -> None:
    raise _StrictError("LOG-008", "integers, or numbers in strings", text)


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) >= 2**53:
        raise _StrictError("LOG-007", "integers of magnitude at most 2**53 - 1", text)
    return int(text)


def _error(rule: str, location: str, expected: str, actual: str) -> RecordError:
    return RecordError([Defect(rule, location, expected, actual)])
