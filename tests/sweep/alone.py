"""What each rule finds that no other does: ``python -m tests.sweep.alone [--every N]``.

Each rule is switched off in turn, and the forgeries that it finds are judged again: those of the table (one
for each rule, written for it), those by class of gaming, and one in N mutants that move the score. A forgery
passes if no other rule rejects or flags it. The reader's rules (LOG) cannot be switched off.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suite.checker import verdict
from suite.checker.verdict import Verdict, check_raw
from suite.log.files import Raw, read_folder
from suite.log.finding import RecordError
from suite.rules import LATEST, load
from tests.fixtures.forged_table import TABLE
from tests.fixtures.gaming import corpus
from tests.fixtures.good_container import rules_of
from tests.sweep.logs import LOGS, fix, honest, raw_of
from tests.sweep.mutants import mutants
from tests.sweep.stakes import stakes, summary

SOURCES = ("table", "gaming", "mutants")


@contextmanager
def without(rule: str) -> Iterator[None]:
    """The checker without one rule."""
    whole = verdict._rules
    kept = tuple(one for one in whole() if one.id != rule)
    verdict._rules = lambda: kept  # type: ignore[assignment]
    try:
        yield
    finally:
        verdict._rules = whole


def forgeries(every: int, seed: int = 20261124) -> Iterator[tuple[str, str, Raw]]:
    """(source, name, log) of every forgery."""
    with tempfile.TemporaryDirectory() as results:
        rows = [("table", one.rule, one) for one in TABLE]
        rows += [("gaming", f"{one.gaming}: {one.name}", one.forged) for one in corpus()]
        for number, (source, name, forged) in enumerate(rows):
            folder = Path(results, str(number))
            try:
                yield source, name, read_folder(forged.make(folder))
            except RecordError:
                continue  # the reader rejects the folder
    drawn = random.Random(seed)
    for log in LOGS:
        before = honest(log)
        old = summary(before)
        for mutant in mutants(before, 0):
            if drawn.randrange(every):
                continue
            events = list(before)
            mutant.forge(events)
            if events and all("data" in event and "kind" in event for event in events):
                fix(events, before, mutant.kind, mutant.field)
                if events != before and stakes(old, events):
                    yield "mutants", f"{log} | {mutant.id}", raw_of(events)


def found_by(judged: Verdict) -> set[str]:
    """The rules that reject or flag."""
    return {one.rule for one in judged.findings if one.severity != "info"}


def count(every: int) -> dict[str, dict[str, list[str]]]:
    """The forgeries, by rule and source, that pass without the rule."""
    passed: dict[str, dict[str, list[str]]] = {}
    for source, name, raw in forgeries(every):
        for rule in found_by(check_raw(raw, rules_of)):
            if rule.startswith("LOG-"):
                continue
            if _passes_without(rule, raw):
                passed.setdefault(rule, {}).setdefault(source, []).append(name)
    return passed


def _passes_without(rule: str, raw: Raw) -> bool:
    """Whether no other rule finds the forgery, or the checker fails: later rules rely on this one."""
    with without(rule):
        try:
            return not found_by(check_raw(raw, rules_of))
        except Exception:  # noqa: BLE001 - any fault shows that the rule is needed
            return True


def main() -> int:
    """Print one line for each rule: what passes without it."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep.alone", description=__doc__)
    parser.add_argument("--every", type=int, default=10, help="take one of so many mutants")
    passed = count(parser.parse_args().every)
    print(f"{'rule':<10} {'severity':<8} {'table':>5} {'gaming':>6} {'mutants':>7}  for example")
    for rule, check in load(LATEST).checks.items():
        if not rule.startswith("LOG-"):
            by = passed.get(rule, {})
            numbers = Counter({source: len(by.get(source, ())) for source in SOURCES})
            example = next((one for source in reversed(SOURCES) for one in by.get(source, ())), "")
            cells = f"{numbers['table']:>5} {numbers['gaming']:>6} {numbers['mutants']:>7}"
            print(f"{rule:<10} {check.severity:<8} {cells}  {example[:90]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
