"""The fast reader: parses a log without defects, as nearly every log is.

The careful reader (:mod:`suite.log.lines`, and the schemas line by line) defines what a valid log is and
reports defects with their locations. The fast reader applies the same checks to many lines at once and can
only accept; it leaves every other log to the careful reader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from hashlib import sha256
from io import BytesIO
from itertools import chain
from typing import Any

import orjson

from suite.log.canonical import MAX_LINE, MAX_STRING, ZERO, plain_text, reencode, surely_plain
from suite.log.days import all_exist
from suite.log.lines import KINDS, rules_version
from suite.log.model import Data, Event
from suite.rules.schemas import Schemas, schemas_for

_SCALARS = frozenset((int, type(None)))
_TOGETHER = 32 << 10  # bytes read at once: their objects still fit into the processor's cache


def quick_events(data: bytes, schemas_of: Callable[[object], Schemas] = schemas_for) -> list[Event] | None:
    """The events of a whole log without a defect in its lines or against its schemas.

    ``schemas_of`` returns the schemas of a rules version. None where the careful reader must decide: the log
    has a defect or something rare, such as a letter beyond ASCII.
    """
    if not data.endswith(b"\n") or not plain_text(data):
        return None
    events: list[Event] = []
    previous, schemas = ZERO, None
    stream = BytesIO(data)
    while lines := stream.readlines(_TOGETHER):
        values = _values(lines)
        if values is None:
            return None
        schemas = schemas or schemas_of(rules_version(values[0]))
        digests = [previous, *[sha256(line).hexdigest() for line in lines]]
        previous = digests.pop()
        some = _events(values, digests, len(events), schemas)
        if some is None:
            return None
        events += some
    return events


def _values(lines: Sequence[bytes]) -> list[dict[str, Any]] | None:
    """The values in ``lines`` of plain text, each ending in LF; None unless all are canonical.

    All values are encoded together: the bytes are equal only if those of each line are.
    """
    longest = max(map(len, lines))
    if longest > MAX_LINE + 1:
        return None
    try:
        values = list(map(orjson.loads, lines))
        if reencode(values) != b"[%b]" % b"".join(lines)[:-1].replace(b"\n", b","):
            return None
        if set(map(type, values)) != {dict}:
            return None
    except (orjson.JSONDecodeError, TypeError):
        return None
    if longest > MAX_STRING and not all(map(_short_strings, lines)):
        return None
    return values


def _short_strings(line: bytes) -> bool:
    """Whether no string in a line without backslashes is too long; there, quotes only delimit strings."""
    return len(line) <= MAX_STRING or max(map(len, line.split(b'"'))) <= MAX_STRING


def _events(
    values: Sequence[dict[str, Any]], previous: Sequence[str], first: int, schemas: Schemas
) -> list[Event] | None:
    """The events in ``values``, if schemas, numbering (from ``first``) and chain (``previous``) hold.

    The envelope's schema limits the numbers, and therefore the count of events.
    """
    if not schemas.all_valid("envelope", values):
        return None
    # An envelope has these fields and no others, and canonical lines have them in ASCII order.
    columns = zip(*map(dict.values, values), strict=True)
    data, kinds, mono_ns, prev, repeats, seq, v, wall = columns
    if not _SCALARS.issuperset(map(type, chain(mono_ns, repeats, seq, v))):
        return None
    if seq != tuple(range(first, first + len(values))) or prev != tuple(previous):
        return None
    if not all_exist(wall):
        return None
    of_kind: defaultdict[str, list[Data]] = defaultdict(list)
    for kind, one in zip(kinds, data, strict=True):
        of_kind[kind].append(one)
    for kind, some in of_kind.items():
        if kind not in KINDS or kind not in schemas.names:
            return None
        if not schemas.all_valid(kind, some) or not surely_plain(some, depth=2):
            return None
    return list(map(Event, seq, kinds, repeats, mono_ns, wall, data))
