"""The known gaps: surviving mutants with something at stake, and facts that no rule verifies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("known.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "threat-model.md"
GENERATED_BELOW = "<!-- Below this line: python -m tests.sweep --known SWEEP.json -->\n"


def known() -> dict[str, Any]:
    """``survivors``: a mutant's log and id to the reason; ``free``: a kind of event to its fields."""
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def page(old: str, free: dict[str, list[str]], reasons: dict[str, str]) -> str:
    """The threat model with a new list; ValueError without the line that precedes it."""
    prose, line, _ = old.partition(GENERATED_BELOW)
    if not line:
        raise ValueError(
            f"{PAGE.name}: expected the line {GENERATED_BELOW.strip()!r}, found none; restore it"
        )
    rows = [f"| {mutant} | {why} |\n" for mutant, why in sorted(reasons.items())]
    lists = []
    for kind, found in sorted(free.items()):
        shown = ", ".join(f"`{field.removeprefix('data.')}`" for field in found)
        lists.append(f"- **{kind}**: {shown}\n")
    table = "| field | reason |\n| --- | --- |\n" + "".join(rows)
    return (
        prose
        + GENERATED_BELOW
        + "\n"
        + table
        + "\nSome changes of these fields, such as plus one, break no rule; none moves a score by 0.1 %.\n\n"
        + "".join(lists)
    )


def write(swept: list[dict[str, Any]], reasons: dict[str, str]) -> None:
    """Write the lists and the page from the output of ``--json``; LookupError for one without a reason.

    A survivor that ``reasons`` does not name is a new gap to be closed or explained.
    """
    free: dict[str, set[str]] = {}
    survivors: dict[str, list[str]] = {}
    for one in swept:
        for kind, fields in one["free"].items():
            free.setdefault(kind, set()).update(fields)
        for mutant, found in one["survivors"].items():
            survivors.setdefault(mutant, []).extend(" | ".join(line.split(" | ")[:4]) for line in found)
    unknown = sorted(set(survivors) - set(reasons))
    if unknown:
        raise LookupError(f"expected a reason for each mutant that survives, found none for {unknown}")
    lists = {kind: sorted(fields) for kind, fields in sorted(free.items())}
    mutants = sorted(min(found) for found in survivors.values())
    report = {"survivors": dict(sorted(reasons.items())), "mutants": mutants, "free": lists}
    PATH.write_text(json.dumps(report, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), lists, reasons))
