"""What disturbed a run, in words: findings about the spread of its times, and other busy processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from suite.log.finding import Finding
from suite.log.model import Record
from suite.log.safe import safe
from suite.log.units import count

# The rules in words; {found} lists the values of the findings, {repeats} counts their repeats.
_IN_WORDS = {
    "STAT-001": "the repeats differ from each other, or steps within one, too much for closed: {found}",
    "STAT-002": "the repeats differ from each other by {found} (their CV, usually at most 3 %)",
    "STAT-004": "steps became slower (-) or faster (+) within the windows: {found}",
    "STAT-006": "single steps took much longer or shorter than the others: {found} in {repeats}",
    "STAT-007": "the times of steps repeat themselves in {repeats}, as if the clock were coarse",
}


def remarks(record: Record, findings: Iterable[Finding]) -> list[str]:
    """One sentence for each rule about statistics with a finding, then one about other processes."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.rule in _IN_WORDS:
            by_rule.setdefault(finding.rule, []).append(finding)
    lines = [_in_words(rule, by_rule[rule]) for rule in sorted(by_rule)]
    return lines + _load(record, disturbed=bool(lines))


def print_remarks(record: Record, findings: Iterable[Finding]) -> None:
    """Print :func:`remarks`, as wide as the terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False)
    for line in remarks(record, findings):
        console.print(Text("noise: " + safe(line, 400)))


def _in_words(rule: str, findings: Sequence[Finding]) -> str:
    # "5.21%; other busy processes by repeat: …": the processes have a sentence of their own.
    found = ", ".join(finding.found.partition(";")[0] for finding in findings).replace("%", " %")
    repeats = count(len({finding.location.partition(",")[0] for finding in findings}), "repeat")
    return _IN_WORDS[rule].format(found=found, repeats=repeats)


def _load(record: Record, *, disturbed: bool) -> list[str]:
    """What else ran when the repeats began; nothing for a quiet run on a quiet machine."""
    loads = [repeat.start["load"] for repeat in record.repeats if repeat.start is not None]
    known = [load for load in loads if load is not None]
    busy = [int(load["other_processes"]) for load in known]
    if any(busy):
        text = "other processes used more than 20 % of a core each when the repeats began"
        return [f"{text} ({', '.join(map(str, busy))} of them): stop them and run again"]
    if not disturbed:
        return []
    if not known:
        return ["what else ran on the machine is not known: the log holds no load"]
    most = max(float(load["one_minute"]) for load in known)
    text = f"no other process was busy when the repeats began (load average at most {most:.1f}); "
    return [f"{text}one may have begun later, or the host of a virtual machine was busy"]
