"""From the bytes of a log to events: the three formats of MLPerf, read as they occur in published logs.

v0.5 ``:::MLPv0.5.0 ncf 1541731867.0725 (ncf.py:450) eval_accuracy: {"epoch": 0, "value": 0.43}``, the value
optional; v0.6 ``:::MLL 1560822683.386 eval_accuracy: {"value": 20.1, "metadata": {…}}``; from v0.7 on
``:::MLLOG {…}``. What stands before a token is dropped (about one published line in eight has a rank or the
debris of a progress bar there), lines without a token are other output. Nothing is evaluated: a value is
JSON, or what Python's repr makes of plain values, read as JSON.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

from suite.mllog.events import V05, V06, V07, Log, Malformed, MllogEvent, number

MAX_LINE = 1 << 18  # bytes
MAX_EVENTS = 500_000
MAX_SHOWN = 20
_MAX_DEPTH, _MAX_KEY, _MAX_TEXT, _MAX_TOKENS, _MAX_PLAIN = 16, 200, 400, 1000, 4096
_MARK = ":::ML"
_MARK_BYTES = _MARK.encode("ascii")
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
_FORMS = {":::MLLOG": V07, ":::MLL": V06, ":::MLPv0.5.0": V05}
# The rank that srun -l, mpirun --tag-output and torchrun put before a line: 0:, [1,0]<stdout>:, [rank3]:
_RANK = re.compile(r"(?:^|\s)\[?(?:rank ?)?([0-9]+(?:,[0-9]+)?)\]?(?:<std(?:out|err)>)?:\s*$")
_PYTHON = re.compile(r"'([^'\"\\]*)'|\b(?:True|False|None)\b")  # a quoted text, or one of three names
_NAMES = {"True": "true", "False": "false", "None": "null"}


class TooManyEventsError(ValueError):
    """A log with more events than any run has."""


class _BadError(ValueError):
    """Why a piece of a line is no event."""


def parse(data: bytes) -> Log:
    """The events of a log and how many of its lines hold a token and are none.

    Bytes are read as latin-1, which never fails. TooManyEventsError over ``MAX_EVENTS``; nothing else raises.
    """
    events: list[MllogEvent] = []
    shown: list[Malformed] = []
    malformed = lines = 0
    for lines, line in enumerate(io.BytesIO(data), start=1):
        if _MARK_BYTES not in line:
            continue
        for part in line.splitlines():  # a progress bar ends in CR
            if _MARK_BYTES not in part:
                continue
            fault = _read(part, lines, events)
            malformed += fault is not None
            if len(events) + malformed > MAX_EVENTS:
                raise TooManyEventsError(f"over {MAX_EVENTS} events")
            if fault is not None and len(shown) < MAX_SHOWN:
                shown.append(fault)
    return Log(lines, tuple(events), malformed, tuple(shown))


def _read(part: bytes, line: int, events: list[MllogEvent]) -> Malformed | None:
    """Append the events of a line: ranks may have put several there. The first piece that is none."""
    if len(part) > MAX_LINE:
        return Malformed(line, f"a line of {len(part)} bytes", part[:_MAX_TEXT].decode("latin-1"))
    text = part.decode("latin-1")
    fault: Malformed | None = None
    at, done = _next(text, 0), 0
    for _ in range(_MAX_TOKENS):
        if at < 0:
            return fault
        try:
            event, end = _event(text, at, done, line)
        except (_BadError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            fault = fault or Malformed(line, why, text[at : at + _MAX_TEXT])
            at = done = _next(text, at + len(_MARK))
            continue
        following = _next(text, end)
        if following < 0 and text[end:].strip():
            return fault or Malformed(line, "text after the event", text[at : at + _MAX_TEXT])
        events.append(event)
        at, done = following, end
    return Malformed(line, f"over {_MAX_TOKENS} events in a line", text[:_MAX_TEXT])


def _next(text: str, start: int) -> int:
    found = _TOKEN.search(text, start)
    return found.start() if found else -1


def _process(text: str, done: int, at: int) -> str:
    """The rank that stands before the token at ``at``; what lies before ``done`` is another event's."""
    if at == done:
        return ""
    found = _RANK.search(text[max(done, at - 40) : at])
    return f"rank {found[1]}" if found else ""


def _event(text: str, at: int, done: int, line: int) -> tuple[MllogEvent, int]:
    """The event whose token is at ``at``, and where it ends."""
    token = _TOKEN.match(text, at)
    form = _FORMS.get(token[0]) if token else None
    if form is None:
        raise _BadError(f"expected one of {', '.join(_FORMS)}")
    head = _HEADS[form].match(text, at)
    if head is None:
        raise _BadError(f"not in the format of {form}")
    process = _process(text, done, at)
    if form == V07:
        value, end = _json(text, head.end())
        return _mllog(value, process, line), end
    value, end = _value(text, head)
    time = float(head["time"]) * 1000
    if len(head["key"]) > _MAX_KEY:
        raise _BadError(f"a key of {len(head['key'])} characters")
    if form == V05:
        metadata = {"file": head["file"], "lineno": int(head["lineno"]), "benchmark": head["benchmark"]}
        return MllogEvent(line, V05, process, time, head["key"], value, metadata, None), end
    if not isinstance(value, dict) or not isinstance(value.get("metadata") or {}, dict):
        raise _BadError("expected an object with value and metadata")
    return MllogEvent(
        line, V06, process, time, head["key"], value.get("value"), value.get("metadata") or {}, None
    ), end


def _value(text: str, head: re.Match[str]) -> tuple[Any, int]:
    """The value behind a key of v0.5 or v0.6, None without one, and where it ends."""
    start = head.end()
    if head["colon"] is None or start == len(text):
        return None, start
    try:
        return _json(text, start)
    except _BadError:
        end = _next(text, start)
        end = len(text) if end < 0 else end
        return _plain(text[start:end].strip()), end


def _plain(text: str) -> Any:
    """What Python's repr made of plain values: quotes and constants are exchanged, and JSON decides."""
    if len(text) > _MAX_PLAIN:
        raise _BadError("expected a value in JSON")
    swapped = _PYTHON.sub(lambda found: _NAMES.get(found[0], f'"{found[1]}"'), text)
    value, end = _json(swapped, 0)
    if end != len(swapped):
        raise _BadError("expected a value in JSON")
    return value


def _mllog(value: Any, process: str, line: int) -> MllogEvent:
    if not isinstance(value, dict):
        raise _BadError("expected an object")
    key, metadata, kind = value.get("key"), value.get("metadata"), value.get("event_type")
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY:
        raise _BadError("expected a key, a text")
    time = number(value.get("time_ms"))
    if time is None:
        raise _BadError("expected time_ms, a finite number")
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict):
        raise _BadError("expected metadata, an object")
    if kind is not None and not isinstance(kind, str):
        raise _BadError("expected event_type, a text")
    namespace = value.get("namespace")
    if isinstance(namespace, str) and namespace:
        process = f"{process} {namespace[:_MAX_KEY]}".lstrip()
    if "pid" in metadata and "tid" in metadata:  # LoadGen
        process = f"{process} pid {metadata['pid']} tid {metadata['tid']}".lstrip()[:_MAX_KEY]
    return MllogEvent(line, V07, process, time, key, value.get("value"), metadata, kind)


def _json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at ``at``, and where it ends; _BadError where none does."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _BadError(f"not JSON: {error.msg}") from None
    except _BadError:
        raise
    except ValueError:  # an integer of thousands of digits
        raise _BadError("a number with too many digits") from None
    if text.count("{", at, end) + text.count("[", at, end) > _MAX_DEPTH and _deep(value):
        raise _BadError("nested too deeply")
    return value, end


def _deep(value: Any) -> bool:
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
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _BadError("a name twice in one object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
