"""Applies the rules to a log and returns the verdict."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from suite.checker.context import RULE_FUNCTIONS, STAGES, Context, HeaderContext, RuleFunction
from suite.log.canonical import sha256_hex
from suite.log.files import Raw, read_folder
from suite.log.finding import Defect, Finding, RecordError
from suite.log.model import Event, Record
from suite.log.reader import record_of
from suite.rules import LATEST, Rules, load
from suite.rules.schemas import Schemas

RulesOf = Callable[[str], Rules]
_PER_RULE = 10  # reported findings of one rule
_WITHOUT_RULES = ("sandboxed", "tasks")  # these modules of the sandbox import this module


@dataclass(frozen=True)
class Verdict:
    """The findings on a result. A result without a score (out of memory) can be accepted."""

    name: str
    findings: tuple[Finding, ...]
    record: Record | None  # None when the log could not be read
    digest: str | None  # SHA-256 of run.jsonl
    rules: str | None
    reached: str  # the progress of the run, as text
    tried: tuple[str, ...] = ()  # the applied rules; a stage that rejects is the last one

    @property
    def rejections(self) -> tuple[Finding, ...]:
        """The findings that reject."""
        return tuple(finding for finding in self.findings if finding.severity == "reject")

    @property
    def flags(self) -> tuple[Finding, ...]:
        """The findings for an auditor to look at."""
        return tuple(finding for finding in self.findings if finding.severity == "flag")

    @property
    def accepted(self) -> bool:
        """No finding rejects."""
        return not self.rejections

    @property
    def scored(self) -> bool:
        """Whether the result is accepted and has a score."""
        return self.accepted and self.record is not None and self.record.completed

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "result": self.name,
            "run_id": self.record.run_id if self.record else None,
            "accepted": self.accepted,
            "scored": self.scored,
            "reached": self.reached,
            "rules": self.rules,
            "sha256": self.digest,
            "rejections": len(self.rejections),
            "flags": len(self.flags),
            "findings": [asdict(finding) for finding in self.findings],
        }


def check_result(path: str | Path, rules_of: RulesOf = load) -> Verdict:
    """The verdict on the result in ``path``, under the rules that ``rules_of`` returns for its version.

    ``rules_of`` raises ValueError for an unknown version. Faults of the result become findings. An exception
    is a fault of the checker, or MalformedRules for a lock that cannot be read.
    """
    with without_collection():
        try:
            raw = read_folder(Path(path))
        except RecordError as error:
            return _unreadable(error, Path(path).name, None, rules_of(LATEST))
        return _check(raw, rules_of)


def check_raw(raw: Raw, rules_of: RulesOf = load) -> Verdict:
    """The verdict on ``raw``: :func:`check_result` for bytes that were already read."""
    with without_collection():
        return _check(raw, rules_of)


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable the garbage collector: a log makes a hundred thousand objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _unreadable(error: RecordError, name: str, digest: str | None, rules: Rules) -> Verdict:
    findings = tuple(_finding(rules, defect) for defect in error.defects)
    return Verdict(name, findings, None, digest, None, "the log cannot be read")


def _check(raw: Raw, rules_of: RulesOf) -> Verdict:
    def schemas_of(version: object) -> Schemas:
        return (_known(version, rules_of) or latest).schemas

    latest = rules_of(LATEST)
    try:
        record = record_of(raw, schemas_of)
    except RecordError as error:
        return _unreadable(error, raw.name, sha256_hex(raw.data), latest)
    version = record.header["rules"]["version"]
    rules, tried = _known(version, rules_of), list[str]()
    if rules is None:
        existing = " or ".join(latest.root.versions)
        defect = Defect("ID-001", record.header.location("rules.version"), existing, version)
        findings: tuple[Finding, ...] = (_finding(latest, defect),)
    else:
        findings = tuple(_apply(Context(record.header.data, rules, record), _rules(), tried))
    named = None if rules is None else version
    return Verdict(record.name, findings, record, record.digest, named, reached(record), tuple(tried))


def _known(version: object, rules_of: RulesOf) -> Rules | None:
    """The rules of the version that a log names; None where there is no such version."""
    try:
        return rules_of(version) if isinstance(version, str) else None
    except ValueError:
        return None


def check_header(header: Mapping[str, Any], rules: Rules) -> list[Finding]:
    """The findings of the rules that need only the header; they are applied before and after a run."""
    if not rules.schemas.valid("header", header):
        explained = rules.schemas.explain("header", header)
        defects = [
            Defect("LOG-014", f"header, data.{path}", "what schemas/header.json allows", m)
            for path, m in explained
        ]
        return [_finding(rules, defect) for defect in defects]
    return list(_apply(HeaderContext(header, rules), [rule for rule in _rules() if rule.before]))


def reached(record: Record) -> str:
    """The progress of a run, as text."""
    if record.completed:
        return "completed"
    last = record.events[-1]
    where = "before repeat 0" if not record.repeats else f"in repeat {record.repeats[-1].index}"
    if record.repeats and record.repeats[-1].end is not None:
        where = f"after repeat {record.repeats[-1].index}"
    if record.aborts:
        abort = record.aborts[-1]
        return f"aborted {where}, phase {abort['phase']}: {abort['code']}"
    return (
        f"ended {where}, phase {_phase_of(last)} (last event {last.kind}, line {last.line}), without a footer"
    )


def _phase_of(last: Event) -> str:
    """The phase of a repeat whose last event is ``last``."""
    if last.kind == "clock":
        at = str(last["at"])
        return {"window_open": "window", "window_close": "tail", "repeat_end": "report"}.get(at, "start")
    if last.kind == "env":
        return "start" if last["side"] == "outside" else "set-up to warm-up"
    return {
        "telemetry": "report",
        "step": "report",
        "rank_end": "report",
        "exchange_sweep": "report",
        "evaluation": "training",
        "repeat_end": "end",
    }.get(last.kind, "start")


def prepare() -> None:
    """Import every rule. The first log of a workload imports its specification."""
    _rules()


@cache
def _rules() -> tuple[RuleFunction, ...]:
    for area in iter_modules([str(Path(__file__).parent)]):
        if area.name not in _WITHOUT_RULES:
            import_module(f"suite.checker.{area.name}")
    return tuple(RULE_FUNCTIONS[name] for name in sorted(RULE_FUNCTIONS))


def _apply(
    context: HeaderContext, registered: Iterable[RuleFunction], tried: list[str] | None = None
) -> list[Finding]:
    """The findings, stage by stage: rules rely on the checks of earlier stages.

    Only rules in the log's rules version are applied. Their ids are appended to ``tried``.
    """
    findings: list[Finding] = []
    known, modes = context.rules.checks, (None, context.mode)
    chosen = [one for one in registered if one.id in known and one.mode in modes]
    chosen = [one for one in chosen if not one.kinds or context.kind in one.kinds]
    for stage in STAGES:
        for one in chosen:
            if one.stage == stage:
                if tried is not None:
                    tried.append(one.id)
                faults = islice(one.check(context), _PER_RULE)
                findings += [_finding(context.rules, Defect(one.id, *map(str, fault))) for fault in faults]
        if any(finding.severity == "reject" for finding in findings):
            break
    return findings


def _finding(rules: Rules, defect: Defect) -> Finding:
    check = rules.checks[defect.rule]
    return Finding(defect.rule, check.severity, defect.location, defect.expected, defect.found, check.fix)
