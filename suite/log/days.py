"""The days of a log's dates: a schema pins how a day is written, not that the calendar has it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from operator import itemgetter

_day_of = itemgetter(slice(10))  # "2026-11-20" of "2026-11-20T17:16:00.000000Z"


def all_exist(walls: Iterable[str]) -> bool:
    """Whether each date, in the form that the schemas pin, is of a day that the calendar has.

    A log has hundreds of dates of one day or two, so that only different days are looked up. Months, hours,
    minutes and seconds need no look: the schemas' pattern leaves none that does not exist.
    """
    return all(map(_exists, set(map(_day_of, walls))))


@lru_cache(maxsize=64)
def _exists(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True
