"""The checked results that a site or a report shows: read in the sandbox, or taken from the cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from suite.checker.sandboxed import VerdictSummary, limit_finding
from suite.compare.result_row import ERROR, ResultRow, result_folders
from suite.compare.scaling import CheckedSet
from suite.compare.scaling_set import FILE, is_set
from suite.compare.submitted_sets import check_sets, has_withdrawn_run, submitted_set_folders
from suite.log.files import LOG
from suite.log.finding import Finding
from suite.log.safe import safe
from suite.sandbox.pool import in_sandboxes
from suite.sandbox.sandbox import LimitsError, Sandbox, TaskError
from suite.site.baselines import Baselines, read_baselines
from suite.site.cache import Cache, key_of, location_of, registry_digest
from suite.site.sweeps import Journal, read_journal
from suite.submissions import SETS
from suite.submissions.package import CheckedSubmission, compared_with_each_other
from suite.submissions.registry import Registry, read_registry
from suite.submissions.registry.model import Withdrawal
from suite.submissions.registry.withdrawals import withdrawal_of
from suite.submissions.rule_table import finding_of
from suite.submissions.system import SLUG
from suite.submissions.tree_findings import rejected_folders

SITE_TASKS = "suite.site.tasks"
_HEAVY = ("curves", "evaluations", "environment")  # of the result's own page
_ENDINGS = (".debug",)
_LONGEST_FAULT = 300
_SEPARATOR = re.compile(r"[\s,;]+")


@dataclass(frozen=True)
class Result:
    """One checked result. ``facts`` are those of :func:`suite.site.facts.facts_of` that every page needs."""

    folder: Path
    key: str  # of the cache
    row: ResultRow
    facts: dict[str, Any]
    findings: tuple[Finding, ...]
    level: str | None
    details: Callable[[], dict[str, Any]] = field(compare=False)  # the facts of its own page
    # Parts of pages that were made of this result, by name (suite.site.parts.kept); never copied to another.
    made: dict[str, str] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def version(self) -> str:
        """A digest of everything that pages show of this result."""
        findings = orjson.dumps([asdict(one) for one in self.findings])
        about = f"{self.key}\n{self.row.status}\n{self.level}\n".encode()
        return sha256(about + findings).hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 of the log; where it could not be read, of the key."""
        found = self.facts["audit"]["sha256"]
        return str(found or sha256(self.key.encode()).hexdigest())

    @cached_property
    def rejected(self) -> bool:
        """Whether any finding rejects."""
        return any(one.severity == "reject" for one in self.findings)

    @cached_property
    def withdrawal(self) -> Withdrawal | None:
        """The submitter's withdrawal of the result; None if there is none."""
        found = self.facts["audit"]["withdrawal"]
        return None if found is None else Withdrawal(**found)

    @cached_property
    def struck(self) -> bool:
        """Whether it is shown struck through and without a score: rejected or withdrawn."""
        return self.rejected or self.withdrawal is not None

    @property
    def submitter(self) -> str:
        """The submitter's slug; empty for a result that is no submission."""
        name = self.row.submitter
        return name if SLUG.fullmatch(name) and len(name) <= 60 else ""

    @property
    def system(self) -> str:
        """The name of its system's page; empty for a result that is no submission."""
        if not self.submitter or not self.row.system:
            return ""
        return sha256(f"{self.row.submitter}/{self.row.system}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ScalingResult:
    """One scaling set with its verdict; ``checked`` is None where it cannot be read."""

    name: str
    digest: str
    verdict: VerdictSummary
    checked: CheckedSet | None


@dataclass(frozen=True)
class Collection:
    """Everything that a site is made of."""

    results: tuple[Result, ...]  # the newest first
    sets: tuple[ScalingResult, ...]
    findings: tuple[Finding, ...]  # about the registry, and about several submissions together
    baselines: Baselines = field(default_factory=Baselines)
    journal: Journal = field(default_factory=Journal)

    def of(self, digest: str) -> Result:
        """The result with this digest of its log."""
        return next(one for one in self.results if one.digest == digest)


def collect(
    root: Path,
    cache: Cache,
    folders: Iterable[Path] | None = None,
    baselines: Path | None = None,
    registry_root: Path | None = None,
) -> Collection:
    """Check every result and scaling set below ``root``; those of the cache are not checked again.

    ``folders`` limits the results; without it all below ``root`` are read. A log that lies in several folders
    has one entry: the submitted one, and of several the first that is not rejected. ``baselines`` is the
    folder of baselines; without it none are read. ``registry_root``: the tree with the registry, if it is not
    ``root``.
    """
    root = root.absolute()
    measured = Baselines()
    if baselines is not None:
        measured = read_baselines(baselines.absolute(), cache, SITE_TASKS)
    journal = read_journal(root, cache, SITE_TASKS) if folders is None else Journal()
    tree = (registry_root or root).absolute()
    registry = read_registry(tree / "registry")
    now = datetime.now(UTC)
    valid = [waiver.name for waiver in registry.waivers if now <= waiver.until]
    of_registry = registry_digest(tree, valid)
    asked = result_folders([root]) if folders is None else (path.absolute() for path in folders)
    found = [path for path in asked if path.suffix not in _ENDINGS and not _is_below(path, baselines)]
    withdrawals = [withdrawal_of(path, cache.digest(path / LOG), registry) for path in found]
    keys = [
        key_of(cache, path, root, of_registry, str(withdrawal))
        for path, withdrawal in zip(found, withdrawals, strict=True)
    ]
    values = _values(cache, root, found, keys)
    packaged = [
        index
        for index, value in enumerate(values)
        if value["entry"] is not None and _is_below(found[index], root)
    ]
    entries = [CheckedSubmission.of_dict(found[index], values[index]["entry"]) for index in packaged]
    levels, between = _compared(cache, entries, [keys[index] for index in packaged], registry, root)
    locations = {location_of(found[index], root) for index in packaged}
    named = _findings_by_location(between, locations)
    sets = _sets(root, cache, rejected_folders(entries, between, root))
    results: dict[str, Result] = {}
    for path, key, value in zip(found, keys, values, strict=True):
        about = named.get(location_of(path, root), []) if value["entry"] is not None else []
        result = _result(path, key, value, cache, about, levels)
        earlier = results.get(result.digest)
        if earlier is None or _precedence(result) > _precedence(earlier):
            results[result.digest] = result
    cache.close()
    ordered = sorted(results.values(), key=lambda one: (one.facts.get("when", ""), one.digest), reverse=True)
    faults = [finding_of(fault) for fault in registry.faults]
    return Collection(tuple(ordered), tuple(sets), (*faults, *between), measured, journal)


def _precedence(result: Result) -> tuple[bool, bool]:
    """Which of two folders with one log is shown: a submitted one, and one that is no rejected copy."""
    return bool(result.row.submitter), not result.struck


def _is_below(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.is_relative_to(folder.absolute())


def _compared(
    cache: Cache, entries: list[CheckedSubmission], keys: Sequence[str], registry: Registry, root: Path
) -> tuple[dict[Path, str | None], list[Finding]]:
    """Levels by folder, and findings about several submissions."""
    name = f"{sha256(chr(10).join(keys).encode()).hexdigest()}.between"
    value = cache.read(name)
    if value is None:
        after, between = compared_with_each_other(entries, registry, root)
        levels = [None if one.assurance is None else one.assurance.level for one in after]
        value = {"levels": levels, "findings": [asdict(one) for one in between]}
        cache.write(name, value)
    levels_by_folder = {one.folder: level for one, level in zip(entries, value["levels"], strict=True)}
    return levels_by_folder, [Finding(**one) for one in value["findings"]]


def _result(
    path: Path,
    key: str,
    value: dict[str, Any],
    cache: Cache,
    about: Sequence[Finding],
    levels: dict[Path, str | None],
) -> Result:
    findings = (*(Finding(**one) for one in value["audit"]["findings"]), *about)
    rejected = any(one.severity == "reject" for one in findings)
    level = None if rejected else levels.get(path, value["audit"]["level"])
    row = ResultRow.of_dict(value["row"])

    def details() -> dict[str, Any]:
        found: dict[str, Any] = cache.read(f"{key}.details") or {}
        return found

    return Result(path, key, row, value, findings, level, details)


def _findings_by_location(findings: Iterable[Finding], locations: set[str]) -> dict[str, list[Finding]]:
    """The findings that name each of the ``locations``, in their location, expected or found.

    What rejects a copy is information about the original.
    """
    odd = [location for location in locations if _SEPARATOR.search(location)]
    named: dict[str, list[Finding]] = {}
    for one in findings:
        text = f"{one.location} {one.expected} {one.found}"
        words = set(_SEPARATOR.split(text)) & locations
        for location in words | {name for name in odd if name in text}:
            of_another = one.severity == "reject" and one.location.partition(", ")[0] != location
            named.setdefault(location, []).append(replace(one, severity="info") if of_another else one)
    return named


def _values(cache: Cache, root: Path, folders: Sequence[Path], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The facts of each folder: from the cache, else from sandboxes, one for each core."""
    values: list[dict[str, Any] | None] = [cache.read(key) for key in keys]
    absent = [index for index, value in enumerate(values) if value is None]
    if not absent:
        return [value for value in values if value is not None]

    def read(sandbox: Sandbox, index: int) -> dict[str, Any]:
        return _fresh(sandbox, cache, folders[index], root, keys[index])

    for index, value in zip(absent, in_sandboxes(SITE_TASKS, read, absent), strict=True):
        values[index] = value
    return [value for value in values if value is not None]


def _fresh(sandbox: Sandbox, cache: Cache, folder: Path, root: Path, key: str) -> dict[str, Any]:
    """The facts of one result, checked now and kept in the cache; failures of a check are not kept."""
    try:
        value: dict[str, Any] = sandbox.run("facts", path=folder, root=root)
    except LimitsError as error:
        return _without_verdict(folder, "rejected", limit_finding(error))
    except TaskError as error:
        return _without_verdict(folder, ERROR, None, safe(error, _LONGEST_FAULT))
    details = {name: value.pop(name) for name in _HEAVY if name in value}
    cache.write(f"{key}.details", details)
    cache.write(key, value)
    return value


def _without_verdict(folder: Path, status: str, found: Finding | None, why: str = "") -> dict[str, Any]:
    """The facts of a result whose check did not end."""
    row = ResultRow(
        group=("unknown", "unknown", "unknown"), key={}, status=status,
        why=why if found is None else f"{found.rule}: {found.found}", flags=0, unit="", device="",
        submitter="", system="", run_id=safe(folder.name), digest=str(folder), metrics={},
    )  # fmt: skip
    audit: dict[str, Any] = {
        "accepted": False, "scored": False, "sha256": None, "rules": None, "level": None, "missing": "",
        "described": False, "submitter": None, "files": {}, "quote": None, "why_no_quote": row.why,
        "withdrawal": None,
        "findings": [] if found is None else [asdict(found)],
    }  # fmt: skip
    return {
        "row": row.as_dict(),
        "audit": audit,
        "outcomes": {},
        "entry": None,
        "reached": row.why,
    }


def _sets(root: Path, cache: Cache, rejected: Mapping[Path, str]) -> list[ScalingResult]:
    """The scaling sets in ``root``/sets, or of the submissions in ``root``, in name order.

    One with a withdrawn run does not count, one with a run of the submissions ``rejected`` is rejected.
    """
    folder = root / SETS
    paths = sorted(path for path in folder.iterdir() if is_set(path)) if folder.is_dir() else []
    paths += submitted_set_folders(root)
    found = []
    if paths:
        with Sandbox(SITE_TASKS) as sandbox:
            for path, verdict, checked in check_sets(sandbox, paths, rejected):
                if checked is not None and has_withdrawn_run(path, checked):
                    continue
                digest = cache.digest(path / FILE) or sha256(path.name.encode()).hexdigest()
                found.append(ScalingResult(safe(path.name), digest, verdict, checked))
    return found
