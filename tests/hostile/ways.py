"""Compares the fast and the careful reader of logs."""

from __future__ import annotations

from suite.log.finding import RecordError
from suite.log.quick import quick_events
from suite.log.reader import careful_events


def ways_agree(data: bytes) -> bool:
    """Whether the careful reader returns the events that the fast reader returns, if any."""
    found = quick_events(data)
    if found is None:
        return True
    try:
        events = careful_events(data, partial=False)
    except RecordError:
        return False
    return [repr(event) for event in found] == [repr(event) for event in events]  # 1.0 and True are not 1
