"""Every rule of a log's rules version with its outcome, or the reason why it was not applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from suite.checker import Verdict
from suite.checker.context import RULE_FUNCTIONS, STAGES, HeaderContext
from suite.log.finding import SEVERITIES, Finding
from suite.log.model import Record
from suite.rules import Rules, load
from suite.rules.root import LATEST

KEPT, FLAGGED, REJECTED, NOTED = "kept", "flagged", "rejected", "noted"
DECLARED = "declared"  # the log declares a difference from the rule, which divisions other than closed allow
NOT_APPLICABLE, NOT_TRIED = "not applicable", "not tried"
ORDER = (REJECTED, FLAGGED, NOTED, DECLARED, NOT_TRIED, NOT_APPLICABLE, KEPT)
_OF = dict(zip(SEVERITIES, (REJECTED, FLAGGED, NOTED), strict=True))
READER = "LOG-"  # prefix of the rules that the reader applies


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """The outcome of one rule; ``because`` is the reason why it was not applied, or empty."""

    rule: str
    outcome: str
    because: str = ""


@dataclass(frozen=True, slots=True)
class _Condition:
    """Rules that can find nothing in a record for which ``holds`` is false, and why."""

    holds: Callable[[Record], bool]
    because: str
    rules: tuple[str, ...]


def _trains(record: Record) -> bool:
    return record.computes and record.key.phase == "train"


def _devices(record: Record) -> bool:
    """Whether counters or outside facts list an accelerator."""
    facts = (event["facts"] for event in record.all("env") if event["side"] == "outside")
    counted = any(event["devices"] for event in record.all("telemetry"))
    return counted or any(one.get("accelerators") for one in facts)


# In this order: the first condition that does not hold is the reported reason.
_CONDITIONS = (
    _Condition(
        _trains,
        "nothing is trained",
        (
            *("TRAIN-002", "TRAIN-003", "TRAIN-008", "TRAIN-009", "TRAIN-010", "TRAIN-012"),
            *("WARM-001", "FING-005", "FING-008"),
        ),
    ),
    _Condition(lambda record: not _trains(record), "training has no outputs", ("INFER-002",)),
    _Condition(
        lambda record: record.subject.batch > 1,
        "outputs of batch 1 may be equal by chance",
        ("INFER-002",),
    ),
    _Condition(lambda record: record.key.precision == "fp16", "only fp16 scales the loss", ("TRAIN-008",)),
    _Condition(
        lambda record: record.division == "closed",
        "only for closed",
        ("STAT-001", "DEV-002", "TRAIN-012", "FING-008"),
    ),
    _Condition(lambda record: record.division != "closed", "not for closed", ("DEV-003",)),
    _Condition(lambda record: record.division != "practice", "not for practice", ("DIV-005", "IMG-002")),
    _Condition(
        lambda record: record.header["image"] is not None,
        "no container ran",
        ("IMG-005", "IMG-006", "IMG-007", "IMG-009", "IMG-010"),
    ),
    _Condition(
        lambda record: record.fingerprint is not None,
        "the log has no fingerprint",
        tuple(f"FING-{number:03}" for number in (2, 3, 4, 5, 6, 7)),
    ),
    _Condition(
        _devices,
        "the log lists no accelerator",
        (
            *("DEV-001", "DEV-004", "DEV-005", "DEV-006", "DEV-007"),
            *("TELE-003", "TELE-004", "TELE-005", "TELE-006", "TELE-012", "TELE-014"),
        ),
    ),
    _Condition(lambda record: record.subject.cache == "cold", "the cache is warm", ("DATA-006",)),
)


def inapplicable(record: Record, rule: str) -> str | None:
    """Why ``rule`` cannot find anything in ``record``; None where it can."""
    for condition in _CONDITIONS:
        if rule in condition.rules and not condition.holds(record):
            return condition.because
    return None


def outcomes(
    verdict: Verdict, rules_of: Callable[[str], Rules] = load, findings: Iterable[Finding] | None = None
) -> tuple[RuleOutcome, ...]:
    """The outcome of every rule of the log's rules version, in the order of its table.

    A log without a known version gets the rules of :data:`LATEST`. ``findings`` replace the verdict's where
    waivers changed severities.
    """
    version = verdict.rules or LATEST
    found = _worst(verdict.findings if findings is None else findings)
    stopped = _stopped(verdict)
    return tuple(
        RuleOutcome(rule, _OF[found[rule]]) if rule in found else _without(verdict, rule, stopped)
        for rule in rules_of(version).checks
    )


def of_rules(
    table: Iterable[str], findings: Iterable[Finding], without: Mapping[str, tuple[str, str]]
) -> list[RuleOutcome]:
    """The outcomes of the rules in ``table``: from ``findings``, from ``without``, or kept.

    ``without`` has (outcome, reason) of rules that were not tried or do not apply.
    """
    found = _worst(findings)
    return [
        RuleOutcome(rule, _OF[found[rule]])
        if rule in found
        else RuleOutcome(rule, *without.get(rule, (KEPT,)))
        for rule in table
    ]


def counted(rows: Iterable[RuleOutcome]) -> str:
    """The number of rules with each outcome, as text."""
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{counts[name]} {name}" for name in ORDER if counts[name])


def _worst(findings: Iterable[Finding]) -> dict[str, str]:
    """The highest severity among the findings of each rule."""
    found: dict[str, str] = {}
    for one in findings:
        before = found.setdefault(one.rule, one.severity)
        found[one.rule] = min(before, one.severity, key=SEVERITIES.index)
    return found


def _without(verdict: Verdict, rule: str, stopped: str) -> RuleOutcome:
    """The outcome of a rule that found nothing."""
    record, registered = verdict.record, RULE_FUNCTIONS.get(rule)
    if rule.startswith(READER) and registered is None:
        return RuleOutcome(rule, KEPT) if record is not None else RuleOutcome(rule, NOT_TRIED, stopped)
    if record is None or verdict.rules is None:
        return RuleOutcome(rule, NOT_TRIED, stopped)
    if registered is None:  # this release of the suite no longer has a function for it
        return RuleOutcome(rule, NOT_TRIED, "this version of the suite does not have the rule")
    if registered.mode not in (None, record.mode):
        return RuleOutcome(rule, NOT_APPLICABLE, f"only for mode {registered.mode}")
    if registered.kinds and record.kind not in registered.kinds:
        return RuleOutcome(rule, NOT_APPLICABLE, f"only for a {' or '.join(registered.kinds)}")
    if rule not in verdict.tried:
        return RuleOutcome(rule, NOT_TRIED, stopped)
    because = inapplicable(record, rule)
    if because is not None:
        return RuleOutcome(rule, NOT_APPLICABLE, because)
    declared = HeaderContext(record.header.data, load(verdict.rules)).allowed(rule)
    return RuleOutcome(rule, DECLARED if declared else KEPT)


def _stopped(verdict: Verdict) -> str:
    """Why rules were not tried, as text."""
    if verdict.record is None:
        return "the reader stopped: the log cannot be read"
    if verdict.rules is None:
        return "the log names an unknown version of the rules"
    broken = {RULE_FUNCTIONS[one.rule].stage for one in verdict.rejections if one.rule in RULE_FUNCTIONS}
    stage = next((name for name in STAGES if name in broken), "")
    return f"stage {stage} rejected the log, and later stages rely on it"
