"""What the sweep is known to leave: survivors with something at stake, why, and facts that nothing verifies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("known.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "threat-model.md"
MARK = "<!-- Below this line: python -m tests.sweep --known SWEEP.json -->\n"


def known() -> dict[str, Any]:
    """``survivors``: a mutant's log and id to the reason; ``free``: a kind of event to its fields."""
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def page(old: str, free: dict[str, list[str]], reasons: dict[str, str]) -> str:
    """The threat model with its list made anew; ValueError without the mark that divides it."""
    prose, mark, _ = old.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE.name}: expected the line {MARK.strip()!r}, found none; restore it")
    rows = [f"| {place} | {why} |\n" for place, why in sorted(reasons.items())]
    lists = [
        f"- **{kind}**: {', '.join(f'`{field}`' for field in found)}\n"
        for kind, found in sorted(free.items())
    ]
    table = "| field | why nothing notices |\n| --- | --- |\n" + "".join(rows)
    return prose + MARK + "\n" + table + "\nFree facts, which no score rests on:\n\n" + "".join(lists)
