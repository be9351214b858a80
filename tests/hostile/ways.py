"""The two ways of reading a log, side by side: the quick one never reads what the careful one refuses."""

from __future__ import annotations

from suite.log.finding import RecordError
from suite.log.quick import quick_events
from suite.log.reader import careful_events


def ways_agree(data: bytes) -> bool:
    """Whether the careful way finds the same events in a log, if the quick way finds any."""
    found = quick_events(data)
    if found is None:
        return True
    try:
        events = careful_events(data, partial=False)
    except RecordError:
        return False
    return [repr(event) for event in found] == [repr(event) for event in events]  # 1.0 and True are not 1
