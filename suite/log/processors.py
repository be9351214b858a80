"""Lists of processors in the kernel's format, such as ``0-2,5``."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LIST = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?){0,99}")


def expand_list(text: str) -> list[int]:
    """Numbers of the kernel's list format: ``0-2,5`` gives 0, 1, 2, 5."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def compact_list(numbers: Iterable[int]) -> str:
    """``numbers`` in the kernel's list format: 0, 1, 2, 5 gives ``0-2,5``."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def processors_in(value: object) -> frozenset[int] | None:
    """The processors of a list from a log, which may hold anything; None if it is no such list."""
    return frozenset(expand_list(value)) if isinstance(value, str) and _LIST.fullmatch(value) else None
