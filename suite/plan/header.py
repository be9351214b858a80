"""The header of a log: built once, checked by the rules before the run, and written as it was checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suite import __version__
from suite import rules as rulebook
from suite.checker import Finding, check_header
from suite.contract import CONVERSION, LOAD, WARMUP_STEPS, ConversionKey, key_fields
from suite.log.canonical import encode, sha256_hex
from suite.log.files import BASELINE, CHANGES
from suite.plan.cited_baseline import CitedBaseline, cite_baseline, not_cited
from suite.plan.code import current_code_digest, current_git_state
from suite.plan.custom import NO_CUSTOM_CODE, CustomCode, changes_patch
from suite.plan.errors import RuleProblem
from suite.plan.options import BUNDLE, RUN_PATHS
from suite.plan.plan import Plan
from suite.plan.prepared import Dataset
from suite.rules import Rules

FORMAT = "suite-log/1"
DEPARTURES = ("DIV-", "IMG-")  # prefixes of the rules that the open division may depart from
_NO_BASELINE = not_cited("a replay cites no baseline")
_NO_LIMIT = "no limit was requested"
_NOT_SET = {  # settings that may be null, and why
    **dict.fromkeys(("cpus", "cpuset", "memory_bytes"), _NO_LIMIT),
    "collective": "the ranks exchange no gradients",
    "shm_bytes": "this runtime does not set the size of shared memory",
    "custom_image": "no custom image was given",
    "custom_pair": "no custom pair was given",
    "custom_python": "no custom interpreter was given",
    "changes_digest": "nothing was changed, or nothing that has to be shown",
}
_UNKNOWN_IMAGE_FIELDS = {  # parts of the header's image that may be null, and why
    "lock": "a custom image is in no lock",
    "manifest_digest": "no digest of this platform's manifest is known",
    "index_digest": "no index is known: the image is for one platform, or not from an image registry",
    "config_digest": "this engine's image store does not report it",
    "requirements_digest": "nothing is installed on top of the image",
}


@dataclass(frozen=True, slots=True)
class CheckedHeader:
    """The data of a log's first event, the files beside the log, and the findings that reject nothing."""

    data: Mapping[str, Any]
    files: Mapping[str, bytes]
    findings: tuple[Finding, ...]


def checked_header(
    plan: Plan, dataset: Dataset, image: Mapping[str, Any] | None, custom: CustomCode, attempt: int
) -> CheckedHeader:
    """The header of the run, with its departures from the closed division declared.

    Departures are declared in the open division, with custom code, and with other counts. RuleProblem for
    everything else that the rules reject.
    """
    rules, changes = rulebook.load(plan.rules_version), b""
    if custom != NO_CUSTOM_CODE or plan.division == "open":
        changes = changes_patch(custom, plan.key.workload, plan.key.framework, plan.rules_version)
    cited = cite_baseline(plan, rules, dataset.path)
    header = build_header(plan, rules, dataset, image, custom, changes, attempt, cited=cited)
    if custom != NO_CUSTOM_CODE or plan.division == "open" or plan.settings.counts_given:
        header["differences"] = _departures(header, rules)
    findings = check_header(header, rules)
    if rejected := [finding for finding in findings if finding.severity == "reject"]:
        lines = [f"{f.rule}: expected {f.expected}, found {f.found}. {f.fix}" for f in rejected]
        raise RuleProblem("the checker would reject this run:\n  " + "\n  ".join(lines))
    files = {name: content for name, content in ((CHANGES, changes), (BASELINE, cited.shared)) if content}
    return CheckedHeader(header, files, tuple(findings))


def _departures(header: Mapping[str, Any], rules: Rules) -> list[dict[str, str]]:
    """The rules of the closed division that the run of ``header`` breaks, each with expected and found."""
    judged = "practice" if header["division"] == "practice" else "closed"
    found: dict[str, str] = {}
    for finding in check_header({**header, "division": judged}, rules):
        if finding.severity == "reject" and finding.rule.startswith(DEPARTURES):
            found.setdefault(finding.rule, f"expected {finding.expected}; this run: {finding.found}"[:400])
    return [{"rule": rule, "reason": reason} for rule, reason in sorted(found.items())]


def build_header(
    plan: Plan,
    rules: Rules,
    dataset: Dataset,
    image: Mapping[str, Any] | None,
    custom: CustomCode,
    changes: bytes,
    attempt: int,
    differences: Sequence[Mapping[str, str]] = (),
    cited: CitedBaseline = _NO_BASELINE,
) -> dict[str, Any]:
    """The data of the log's first event, for every kind of job, before the rules check it."""
    settings = settings_of(plan, custom, changes)
    git, unknown = current_git_state()
    reasons = dict(unknown)
    if plan.settings.nonce is None:
        reasons["nonce"] = "no registry nonce was given"
    if dataset.generator is None:
        reasons["dataset.generator"] = "an official dataset has no generator"
    if image is None:
        reasons["image"] = f"runtime {plan.runtime} uses no image"
    reasons |= _why_null(settings, image)
    if plan.affinity is not None:
        reasons["settings.cpuset"] = f"the affinity of the worker is {plan.affinity}; no limit enforces it"
    return {
        "format": FORMAT,
        "kind": plan.kind,
        "run_id": plan.run_id,
        "suite_version": __version__,
        "rules": rules.stamp(
            plan.key.workload,
            None if dataset.kind == "synthetic" else dataset.name,
            framework=plan.key.framework,
            image=image,
        ),
        "code_digest": current_code_digest(),
        "git": dict(git),
        **_kind_fields(plan, rules, reasons, cited),
        "division": plan.division,
        "purpose": plan.settings.purpose,
        "attempt": attempt,
        "nonce": plan.settings.nonce,
        "runtime": plan.runtime,
        "launcher": plan.settings.launcher,
        "repeats": plan.repeats,
        "warmup_steps": WARMUP_STEPS,
        "measured_steps": plan.measured_steps,
        "settings": settings,
        "settings_digest": sha256_hex(encode(settings)),
        "overrides": [_without_path(text) for text in plan.settings.overrides],
        "dataset": {
            "name": dataset.name,
            "kind": dataset.kind,
            "digest": dataset.digest,
            "files": dataset.files,
            "bytes": dataset.bytes,
            "generator": dataset.generator,
        },
        "image": None if image is None else dict(image),
        "differences": [dict(row) for row in differences],
        "reasons": reasons,
    }


def _kind_fields(plan: Plan, rules: Rules, reasons: dict[str, str], cited: CitedBaseline) -> dict[str, Any]:
    """The fields that only this kind of job has. Reasons of nulls are added to ``reasons``."""
    if isinstance(plan.key, ConversionKey):
        return {CONVERSION: key_fields(plan.key)}
    fields = {"key": asdict(plan.key), "mode": plan.settings.mode, "loader": plan.settings.loader}
    if plan.kind == LOAD:
        return fields
    initial = rules.initial_parameters(plan.key, plan.settings.mode)
    if initial is None:
        reasons["initial_parameters"] = "the rules hold no digest of the initial parameters of this run"
    if cited.data is None:
        reasons["baseline"] = cited.reason
    return {
        **fields,
        "hyper": dict(plan.hyper),
        "initial_parameters": initial,
        "baseline": cited.data,
    }


def settings_of(plan: Plan, custom: CustomCode, changes: bytes = b"") -> dict[str, Any]:
    """The resolved options as the log holds them: text, numbers and flags, no paths."""
    asked = plan.settings
    excluded = asked.slurm.exclude if asked.slurm is not None else ()
    if isinstance(plan.key, ConversionKey):
        of_kind: dict[str, Any] = key_fields(plan.key)
    else:
        stored = {} if asked.storage == "files" else {"storage": asked.storage}
        of_kind = {**stored, **asdict(plan.key), "mode": asked.mode, "loader": asked.loader}
        of_kind["collective"] = plan.collective or None
    return {
        **of_kind,
        "division": plan.division,
        "purpose": asked.purpose,
        "launcher": asked.launcher,
        "runtime": plan.runtime,
        "telemetry": asked.telemetry,
        "fingerprint": plan.fingerprint,
        "device": plan.device.partition(":")[0],
        "threads": plan.threads,
        "wait_policy": asked.wait_policy,
        "fast": asked.fast,
        **({"variables": dict(asked.variables)} if asked.variables else {}),
        "cpus": plan.limits.cpus,
        "cpuset": plan.limits.cpuset,
        "memory_bytes": plan.limits.memory_bytes,
        "shm_bytes": plan.limits.shm_bytes,
        "custom_image": asked.image,
        "custom_pair": custom.pair_digest,
        "custom_python": custom.python_digest,
        "changes_digest": sha256_hex(changes) if changes else None,
        "soak_ns": plan.soak_ns,
        "tail_ns": plan.tail_ns,
        "max_epochs": plan.max_epochs,
        **({"pod_image": asked.kubernetes.digest} if asked.kubernetes is not None else {}),
        **({"excluded_nodes": [one.reason for one in excluded]} if excluded else {}),
        **({"bucket_mib": asked.bucket_mib} if asked.bucket_mib is not None else {}),
        **({"reuse_compiled": True} if asked.reuse_compiled else {}),
        **({"repeats": asked.repeats} if asked.repeats is not None else {}),
        **({"steps": asked.steps} if asked.steps is not None else {}),
        **({"min_seconds": asked.min_seconds} if asked.min_seconds is not None else {}),
        **({"pilot_ns": plan.pilot_ns} if plan.pilot_ns is not None else {}),
        **({"batch_search": [list(probe) for probe in plan.search]} if plan.search else {}),
    }


def _why_null(settings: Mapping[str, Any], image: Mapping[str, Any] | None) -> dict[str, str]:
    """The reasons of null settings and null parts of the image."""
    reasons = {f"settings.{name}": why for name, why in _NOT_SET.items() if settings.get(name, why) is None}
    unknown = {name for name, value in (image or {}).items() if value is None}
    return reasons | {f"image.{name}": _UNKNOWN_IMAGE_FIELDS.get(name, "not known") for name in unknown}


def _without_path(override: str) -> str:
    """``override``, with <path> instead of a path: the log names no folders of a machine."""
    name, equals, value = override.partition("=")
    option = name.lstrip("+")
    if option == "image":  # a repository with a digest is not a path
        return override
    paths = [one.name for one in (*RUN_PATHS, BUNDLE)]
    path = option in (*paths, "framework.python") or ("/" in value and option != "experiment")
    return f"{name}=<path>" if equals and path else override
