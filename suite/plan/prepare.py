"""What stands between a plan and its first repeat: data, interpreter, places, and the rules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from suite import rules as rulebook
from suite.checker import Finding, check_header
from suite.datasets import errors as dataset_errors
from suite.datasets.prepare import prepare as prepare_dataset
from suite.plan.errors import DatasetProblem, EnvironmentProblem, RuleProblem, StorageProblem, Unsupported
from suite.plan.plan import Dataset, Plan
from suite.runtime import environments
from suite.runtime.environment_errors import EnvironmentMissing, LargeDownload
from suite.workloads import specification

DEPARTURES = ("DIV-", "IMG-")  # the areas of rules that open may depart from
_NEEDED_BYTES = 64 << 20


def prepare_places(plan: Plan) -> None:
    """Refuse a folder that cannot be written or a disk that is full, before anything is made."""
    for name in ("results_dir", "cache_dir"):
        _prepare_place(name, getattr(plan.settings, name))


def _prepare_place(name: str, folder: Path) -> None:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK) or _read_only(existing):
        raise StorageProblem(f"{name}: {folder} cannot be written; set {name.upper()} to a folder that can")
    state = os.statvfs(existing)
    free = state.f_bavail * state.f_frsize
    if free < _NEEDED_BYTES:
        raise StorageProblem(
            f"{name}: expected {_NEEDED_BYTES >> 20} MiB free at {folder}, found {free >> 20} MiB; "
            f"free space, or set {name.upper()} to another disk"
        )


def _read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def prepare_data(plan: Plan) -> Plan:
    """The plan with its dataset: generated, verified, or the stream of synthetic batches."""
    if plan.key.data == "synthetic":
        spec = specification(plan.key.workload)
        digest = rulebook.synthetic_digest(plan.key)
        return plan.with_(dataset=Dataset(f"{spec.NAME}-synthetic", "synthetic", digest, 0, 0, "synthetic/1"))
    name = specification(plan.key.workload).DATASETS[plan.key.scale]
    try:
        ready = prepare_dataset(name, plan.settings.data_root)
    except dataset_errors.StorageError as error:
        raise StorageProblem(str(error)) from error
    except dataset_errors.DatasetError as error:
        raise DatasetProblem(str(error)) from error
    dataset = Dataset(
        ready.name,
        ready.kind,
        ready.digest,
        len(ready.files),
        ready.bytes,
        ready.generator,
        ready.path,
        tuple(ready.paths),
    )
    return plan.with_(dataset=dataset)


def prepare_python(plan: Plan) -> Plan:
    """The plan with the interpreter of its framework, made when first needed."""
    if plan.settings.python is not None:
        python = Path(plan.settings.python).expanduser()
        if not python.is_file() or not os.access(python, os.X_OK):
            raise EnvironmentProblem(f"framework.python: expected an interpreter, found {python}")
        return plan.with_(python=python.absolute())
    accelerator = "cuda" if plan.device.startswith("cuda") else "cpu"
    try:
        python = environments.ensure(
            plan.key.framework, accelerator, allow_large=plan.settings.fetch, progress=_say
        )
    except (EnvironmentMissing, LargeDownload) as error:
        raise EnvironmentProblem(str(error)) from error
    except OSError as error:
        raise StorageProblem(f"the environment of {plan.key.framework} cannot be made: {error}") from error
    return plan.with_(python=python)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def findings_before(plan: Plan) -> list[Finding]:
    """What the checker would say of this run's header."""
    rules = rulebook.load(plan.rules_version)
    return check_header(plan.header(rules), rules)


def declare_differences(plan: Plan) -> Plan:
    """In open, what departs from closed is declared; anything else that the rules reject refuses the run."""
    if plan.division == "open":
        plan = plan.with_(differences=tuple(_differences(plan)))
    rejected = [finding for finding in findings_before(plan) if finding.severity == "reject"]
    if rejected:
        lines = [f"{f.rule}: expected {f.expected}, found {f.actual}. {f.mend}" for f in rejected]
        raise RuleProblem("the checker would reject this run:\n  " + "\n  ".join(lines))
    return plan


def _differences(plan: Plan) -> list[tuple[str, str]]:
    """The rules of closed that this run departs from, each with what it does instead."""
    rules = rulebook.load(plan.rules_version)
    closed = check_header({**plan.header(rules), "division": "closed"}, rules)
    found: dict[str, str] = {}
    for finding in closed:
        if finding.severity == "reject" and finding.rule.startswith(DEPARTURES):
            found.setdefault(finding.rule, f"expected {finding.expected}; this run: {finding.actual}"[:400])
    return sorted(found.items())


def unsupported_pair(plan: Plan) -> None:
    """Refuse a pair whose framework has no build for this device."""
    if plan.device.startswith("cuda") and plan.key.framework == "mxnet":
        raise Unsupported("framework: MXNet 1.9.1 has no build for current NVIDIA GPUs outside its container")
