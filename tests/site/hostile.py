"""A result whose every string is hostile: text that would run, break markup, or break a layout."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

from suite.compare.result_row import ResultRow
from suite.log.finding import Finding
from suite.site.collect import Result

SET = "window.attacked=1"
STRINGS = (
    f"<script>{SET}</script>",
    f'"><img src=x onerror={SET}>',
    f"' onmouseover={SET} x='",
    f"javascript:{SET}",
    f"</script><script>{SET}</script>",
    f"</style></title></textarea><svg onload={SET}>",
    f"<!--{SET}-->]]>&lt;&#60;&quot;",
    "https://evil.example/?q=1",
    "\u202egpj.exe\u202d \u2066isolated",
    "\x1b[31mred\x00\r\n\x08",
    "a\u0300\u0301\u0302\u0303\u0304\u0305" * 20,
    "W" * 5000,
    "=HYPERLINK(1)",
    "שלום עולם",
    "${7*7}{{7*7}}",
    "",
)
# Values that our own code sets: file names, and what decides which sections a page has.
_KEPT = ("sha256", "digest", "level", "severity", "kind", "status", "accepted", "scored")


class Hostile:
    """Replaces strings one after another, so that each field gets another one in each result."""

    def __init__(self, start: int) -> None:
        strings = STRINGS[start % len(STRINGS) :] + STRINGS[: start % len(STRINGS)]
        self._strings = cycle(strings)

    def value(self, value: Any, name: str = "") -> Any:
        """``value`` with hostile strings; the names of free facts are hostile too."""
        if name == "sheet":  # of the rules
            return value
        if isinstance(value, str):
            return value if name in _KEPT else next(self._strings)
        if isinstance(value, dict):
            free = name in ("facts of a group", "hyper")
            inner = "facts of a group" if name in ("facts", "environment") else ""
            return {
                (f"{next(self._strings)}{index}" if free else key): self.value(one, inner or key)
                for index, (key, one) in enumerate(value.items())
            }
        if isinstance(value, list):
            return [self.value(one, name) for one in value]
        return value


def hostile_result(result: Result, start: int) -> Result:
    """``result`` with hostile strings in its row, its facts, its findings and its details."""
    replaced = Hostile(start)
    facts = replaced.value(result.facts)
    facts["audit"]["sha256"] = f"{start:064x}"
    if start % 4 in (1, 2):  # half of them are withdrawn, each for another of the strings
        names = ("sha256", "run_id", "submitter", "withdrawn_at", "reason")
        reason = STRINGS[(start // 4 * 2 + start % 4 - 1) % len(STRINGS)]
        facts["audit"]["withdrawal"] = dict.fromkeys(names, reason)
    details = replaced.value(result.details())
    row = ResultRow.of_dict(replaced.value(result.row.as_dict()))
    finding = Finding("LOG-014", "flag", *(next(replaced._strings) for _ in range(4)))
    return Result(Path("x"), result.key, row, facts, (finding,), result.level, lambda: details)
