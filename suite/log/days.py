"""Checks that the dates of a log exist in the calendar; the schemas only define how a date is written."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from operator import itemgetter

_day_of = itemgetter(slice(10))  # "2026-11-20" of "2026-11-20T17:16:00.000000Z"


def all_exist(dates: Iterable[str]) -> bool:
    """Whether the day of each date exists. ``dates`` are written as the schemas require.

    Only distinct days are looked up, because the hundreds of dates of a log share one or two days. The
    schemas' pattern already excludes months, hours, minutes and seconds that do not exist.
    """
    return all(map(_exists, set(map(_day_of, dates))))


@lru_cache(maxsize=64)
def _exists(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True
