"""Parse the bytes of a log into events: the three formats of MLPerf, as they occur in published logs.

v0.5 ``:::MLPv0.5.0 ncf 1541731867.0725 (ncf.py:450) eval_accuracy: {"epoch": 0, "value": 0.43}``, the value
optional; v0.6 ``:::MLL 1560822683.386 eval_accuracy: {"value": 20.1, "metadata": {…}}``; from v0.7 on
``:::MLLOG {…}``. Text before a token is dropped (about one published line in eight has a rank or the remains
of a progress bar there); lines without a token are other output. Nothing is evaluated: a value is JSON, or
the repr of plain Python values, translated to JSON.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

from suite.mllog.events import V05, V06, V07, Malformed, MllogEvent, ParsedLog, number

MAX_LINE = 1 << 18  # bytes
MAX_EVENTS = 500_000
MAX_SHOWN = 20
_MAX_DEPTH, _MAX_KEY, _MAX_TEXT, _MAX_TOKENS, _MAX_REPR = 16, 200, 400, 1000, 4096
_TOKEN_START = ":::ML"
_TOKEN_BYTES = _TOKEN_START.encode("ascii")
_TIME = r"(?P<time>[0-9]{1,15}(?:\.[0-9]{0,12})?)"
_KEY = r"(?P<key>[\w./-]+) ?(?P<colon>:(?!::ML))?\s*"  # another event may follow at once
_HEADS = {
    V07: re.compile(r":::MLLOG +(?=\{)"),
    V06: re.compile(rf":::MLL +{_TIME} +{_KEY}"),
    V05: re.compile(
        rf":::MLPv0\.5\.0 +(?P<benchmark>\S+) +{_TIME} +"
        rf"\((?P<file>[^:]*(?::[^:)]*)*):(?P<lineno>[0-9]{{1,9}})\) +{_KEY}"
    ),
}
_TOKEN = re.compile(r":::ML(?:LOG|L|P[v0-9.]*)")
_FORMATS = {":::MLLOG": V07, ":::MLL": V06, ":::MLPv0.5.0": V05}
# The rank that srun -l, mpirun --tag-output and torchrun write before a line: 0:, [1,0]<stdout>:, [rank3]:
_RANK = re.compile(r"(?:^|\s)\[?(?:rank ?)?([0-9]+(?:,[0-9]+)?)\]?(?:<std(?:out|err)>)?:\s*$")
_PYTHON = re.compile(r"'([^'\"\\]*)'|\b(?:True|False|None)\b")  # a quoted text or one of three constants
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}


class TooManyEvents(ValueError):
    """The log has more than ``MAX_EVENTS`` events, more than any run."""


class NotAnEvent(ValueError):
    """A part of a line that starts with a token is not an event; the message states why."""


def parse(data: bytes) -> ParsedLog:
    """The events of a log, and its lines that contain a token but no event.

    Bytes are read as latin-1, which never fails. Raises only TooManyEvents (over ``MAX_EVENTS``).
    """
    events: list[MllogEvent] = []
    shown: list[Malformed] = []
    malformed = unreadable = lines = 0
    for lines, line in enumerate(io.BytesIO(data), start=1):
        if _TOKEN_BYTES not in line:
            continue
        for part in line.splitlines():  # a progress bar ends in CR
            if _TOKEN_BYTES not in part:
                continue
            fault, at_end = _read_line(part, lines, events)
            malformed += fault is not None
            unreadable += at_end
            if len(events) + malformed > MAX_EVENTS:
                raise TooManyEvents(f"over {MAX_EVENTS} events")
            if fault is not None and len(shown) < MAX_SHOWN:
                shown.append(fault)
    return ParsedLog(lines, tuple(events), malformed, tuple(shown), unreadable)


def _read_line(part: bytes, line: int, events: list[MllogEvent]) -> tuple[Malformed | None, bool]:
    """Append the events of a line (several ranks may share one).

    Returns its first malformed part, and whether the end of the line, from its last token on, is malformed.
    """
    if len(part) > MAX_LINE:
        return Malformed(line, f"a line of {len(part)} bytes", part[:_MAX_TEXT].decode("latin-1")), True
    text = part.decode("latin-1")
    fault: Malformed | None = None
    at_end = False
    at, end_of_last = _next_token(text, 0), 0
    for _ in range(_MAX_TOKENS):
        if at < 0:
            return fault, at_end
        try:
            event, end = _event(text, at, end_of_last, line)
        except (NotAnEvent, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            fault = fault or Malformed(line, why, text[at : at + _MAX_TEXT])
            at = end_of_last = _next_token(text, at + len(_TOKEN_START))
            at_end = True
            continue
        following = _next_token(text, end)
        if following < 0 and text[end:].strip():
            return fault or Malformed(line, "text after the event", text[at : at + _MAX_TEXT]), True
        events.append(event)
        at, end_of_last, at_end = following, end, False
    return Malformed(line, f"over {_MAX_TOKENS} events in a line", text[:_MAX_TEXT]), True


def _next_token(text: str, start: int) -> int:
    match = _TOKEN.search(text, start)
    return match.start() if match else -1


def _process(text: str, end_of_last: int, at: int) -> str:
    """The rank written before the token at ``at``, after the last event's end; "" without one."""
    if at == end_of_last:
        return ""
    match = _RANK.search(text[max(end_of_last, at - 40) : at])
    return f"rank {match[1]}" if match else ""


def _event(text: str, at: int, end_of_last: int, line: int) -> tuple[MllogEvent, int]:
    """The event whose token is at ``at``, and the index after its end."""
    token = _TOKEN.match(text, at)
    log_format = _FORMATS.get(token[0]) if token else None
    if log_format is None:
        raise NotAnEvent(f"expected one of {', '.join(_FORMATS)}")
    head = _HEADS[log_format].match(text, at)
    if head is None:
        raise NotAnEvent(f"not in the format of {log_format}")
    process = _process(text, end_of_last, at)
    if log_format == V07:
        value, end = _json(text, head.end())
        return _mllog(value, process, line), end
    value, end = _value(text, head)
    time = float(head["time"]) * 1000
    if len(head["key"]) > _MAX_KEY:
        raise NotAnEvent(f"a key of {len(head['key'])} characters")
    if log_format == V05:
        metadata = {"file": head["file"], "lineno": int(head["lineno"]), "benchmark": head["benchmark"]}
        return MllogEvent(line, V05, process, time, head["key"], value, metadata, None), end
    if not isinstance(value, dict) or not isinstance(value.get("metadata") or {}, dict):
        raise NotAnEvent("expected an object with value and metadata")
    return MllogEvent(
        line, V06, process, time, head["key"], value.get("value"), value.get("metadata") or {}, None
    ), end


def _value(text: str, head: re.Match[str]) -> tuple[Any, int]:
    """The value after a key of v0.5 or v0.6, None without one, and the index after its end."""
    start = head.end()
    if head["colon"] is None or start == len(text):
        return None, start
    try:
        return _json(text, start)
    except NotAnEvent:
        end = _next_token(text, start)
        end = len(text) if end < 0 else end
        return _python_repr(text[start:end].strip()), end


def _python_repr(text: str) -> Any:
    """The value of a Python repr: quotes and constants are replaced by those of JSON, and parsed as JSON."""
    if len(text) > _MAX_REPR:
        raise NotAnEvent("expected a value in JSON")
    as_json = _PYTHON.sub(lambda match: _CONSTANTS.get(match[0], f'"{match[1]}"'), text)
    value, end = _json(as_json, 0)
    if end != len(as_json):
        raise NotAnEvent("expected a value in JSON")
    return value


def _mllog(value: Any, process: str, line: int) -> MllogEvent:
    if not isinstance(value, dict):
        raise NotAnEvent("expected an object")
    key, metadata, kind = value.get("key"), value.get("metadata"), value.get("event_type")
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY:
        raise NotAnEvent("expected a key, a text")
    time = number(value.get("time_ms"))
    if time is None:
        raise NotAnEvent("expected time_ms, a finite number")
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict):
        raise NotAnEvent("expected metadata, an object")
    if kind is not None and not isinstance(kind, str):
        raise NotAnEvent("expected event_type, a text")
    namespace = value.get("namespace")
    if isinstance(namespace, str) and namespace:
        process = f"{process} {namespace[:_MAX_KEY]}".lstrip()
    if "pid" in metadata and "tid" in metadata:  # LoadGen
        process = f"{process} pid {metadata['pid']} tid {metadata['tid']}".lstrip()[:_MAX_KEY]
    return MllogEvent(line, V07, process, time, key, value.get("value"), metadata, kind)


def _json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at ``at``, and the index after its end; NotAnEvent without one."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise NotAnEvent(f"not JSON: {error.msg}") from None
    except NotAnEvent:
        raise
    except ValueError:  # an integer of thousands of digits
        raise NotAnEvent("a number with too many digits") from None
    if text.count("{", at, end) + text.count("[", at, end) > _MAX_DEPTH and _exceeds_depth(value):
        raise NotAnEvent("nested too deeply")
    return value, end


def _exceeds_depth(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotAnEvent("a name twice in one object")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
