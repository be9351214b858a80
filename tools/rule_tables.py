"""The tables of rules in the documents: ``python -m tools.rule_tables`` writes them, a test compares them.

The ids, titles and severities of rules are in ``checks.json``, ``submission.json`` and ``scaling.json`` of
``rules/1.0/``. A document has a table between two markers; the first names the areas of its rules, or ``*``
for all rules of a log with a heading for each area::

    <!-- rules SIGN REG: python -m tools.rule_tables -->
    <!-- /rules -->
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from suite.compare.scaling import rules as set_rules
from suite.rules import LATEST, load
from suite.submissions.rule_table import rules

ROOT = Path(__file__).resolve().parents[1]
PAGES = (f"rules/{LATEST}/RULES.md", "docs/submitting.md", "submissions/README.md")
HEADINGS = {
    "LOG": "Format of the log",
    "ID": "Identity",
    "DIV": "Division",
    "IMG": "Container images",
    "DATA": "Data",
    "SEED": "Seeds",
    "FORM": "Conversions and storage formats",
    "RUN": "Repeats",
    "STEP": "Steps",
    "RANK": "Ranks",
    "EXCH": "Sweep of the exchange",
    "NODE": "Nodes",
    "UNIT": "Units of work",
    "TIME": "Time",
    "WARM": "Warm-up",
    "TRAIN": "Training",
    "INFER": "Inference",
    "STAT": "Spread",
    "COPY": "Copies",
    "PHYS": "Hardware limits",
    "BASE": "Baseline of the machine",
    "TELE": "Telemetry",
    "DEV": "Devices",
    "ENV": "Environment",
    "FING": "Fingerprint",
    "CLAIM": "Claims",
    "QUAL": "Quality",
}
_TABLE = re.compile(
    r"(<!-- rules ([A-Z* ]+): python -m tools\.rule_tables -->\n).*?(<!-- /rules -->\n)", re.DOTALL
)
_HEAD = "| rule | severity | what must hold |\n| --- | --- | --- |\n"


def _known() -> dict[str, tuple[str, str]]:
    """Severity and title by id, of the rules of a log and of those about submissions and scaling sets."""
    found = {name: (check.severity, check.title) for name, check in load(LATEST).checks.items()}
    rows = {**rules(), **set_rules()}
    return found | {name: (row["severity"], row["title"]) for name, row in rows.items()}


def area(rule: str) -> str:
    """The area of a rule's id: "TIME" of "TIME-001"."""
    return rule.partition("-")[0]


def table(areas: Iterable[str], known: Mapping[str, tuple[str, str]]) -> str:
    """The table of the rules of ``areas``, in the order of their ids."""
    wanted = list(areas)
    rows = sorted(name for name in known if area(name) in wanted)
    rows.sort(key=lambda name: wanted.index(area(name)))
    return _HEAD + "".join(f"| {name} | {known[name][0]} | {known[name][1]} |\n" for name in rows)


def page(text: str) -> str:
    """``text`` with its tables generated again; ValueError if it has none."""
    known, of_log = _known(), list(dict.fromkeys(map(area, load(LATEST).checks)))

    def with_table(marker: re.Match[str]) -> str:
        if marker[2] == "*":
            body = "\n".join(f"### {HEADINGS.get(one, one)}\n\n{table([one], known)}" for one in of_log)
            body = f"\n{body}\n"
        else:
            body = table(marker[2].split(), known)
        return marker[1] + body + marker[3]

    text, count = _TABLE.subn(with_table, text)
    if not count:
        raise ValueError("expected a table between <!-- rules ...: --> and <!-- /rules -->, found none")
    return text


def main() -> int:
    """Write the tables of every page."""
    argparse.ArgumentParser(prog="python -m tools.rule_tables", description=__doc__).parse_args()
    for name in PAGES:
        path = ROOT / name
        path.write_text(page(path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
