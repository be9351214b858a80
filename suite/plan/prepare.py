"""What stands between a plan and its first repeat: data, interpreter, places, and the rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from suite import rules as rulebook
from suite.checker import Finding, check_header
from suite.datasets import errors as dataset_errors
from suite.datasets import registry
from suite.datasets.prepare import lacking
from suite.datasets.prepare import prepare as prepare_dataset
from suite.datasets.record_folder import prepare_form
from suite.images.bundle import open_bundle
from suite.images.bundle_manifest import BundleProblem
from suite.plan.errors import DatasetProblem, EnvironmentProblem, RuleProblem, StorageProblem
from suite.plan.images import prepare_image
from suite.plan.own import NO_OWN_CODE, changes_patch, own_code
from suite.plan.plan import Dataset, Plan
from suite.runtime import environments
from suite.runtime.environment_errors import EnvironmentMissing, LargeDownload
from suite.runtime.workers import NativeWorkers
from suite.workloads import specification

DEPARTURES = ("DIV-", "IMG-")  # the areas of rules that open may depart from
_NEEDED_BYTES = 64 << 20


def prepare_places(plan: Plan) -> None:
    """Refuse a folder that cannot be written or a disk that is full, before anything is made."""
    names = ["results_dir", "cache_dir", *(["data_root"] if plan.key.phase == "preprocess" else [])]
    for name in names:
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


def prepare_bundle(plan: Plan) -> Plan:
    """The plan with its bundle, every file of it verified, where it has one."""
    path = plan.settings.bundle
    if path is None:
        return plan
    _say(f"verifying the bundle {path.name}")
    try:
        bundle = open_bundle(path)
        bundle.require(plan.key.workload, plan.key.framework)
    except BundleProblem as error:
        raise EnvironmentProblem(str(error)) from error
    return plan.with_(bundle=bundle)


def prepare_data(plan: Plan) -> Plan:
    """The plan with its dataset: generated, verified, or the stream of synthetic batches."""
    if plan.key.data == "synthetic":
        spec = specification(plan.key.workload)
        digest = rulebook.synthetic_digest(plan.key)
        return plan.with_(dataset=Dataset(f"{spec.NAME}-synthetic", "synthetic", digest, 0, 0, "synthetic/1"))
    name = specification(plan.key.workload).DATASETS[plan.key.scale]
    try:
        if plan.bundle is not None:
            plan.bundle.place_dataset(name, plan.settings.data_root)
        if plan.settings.form == "files":
            ready = prepare_dataset(name, plan.settings.data_root)
        else:
            ready = prepare_form(name, plan.settings.form, plan.settings.data_root)
    except dataset_errors.StorageError as error:
        raise StorageProblem(str(error)) from error
    except dataset_errors.DatasetError as error:
        raise DatasetProblem(str(error)) from error
    if plan.settings.mode == "quality" and (lacks := lacking(registry.entry(name), ready.path)):
        raise DatasetProblem(f"{ready.path}: {lacks}")
    dataset = Dataset(
        ready.name,
        ready.kind,
        ready.digest,
        ready.count,
        ready.bytes,
        ready.generator,
        ready.path,
        tuple(ready.paths),
    )
    return plan.with_(dataset=dataset)


def prepare_workers(plan: Plan) -> Plan:
    """The plan with what starts its workers: an interpreter made when first needed, or an image."""
    own = own_code(plan.settings, "cuda" if plan.device.startswith("cuda") else "cpu")
    plan = plan.with_(own=own)
    if plan.engine is not None:
        return prepare_image(plan, _say)
    python = _python(plan)
    _check_loader(plan, python)
    workers = NativeWorkers(python, plan.threads, plan.settings.wait_policy, plan.visible_devices, own.pair)
    return plan.with_(workers=workers)


def _python(plan: Plan) -> Path:
    if plan.settings.python is not None:
        python = Path(plan.settings.python).expanduser()
        if not python.is_file() or not os.access(python, os.X_OK):
            raise EnvironmentProblem(f"framework.python: expected an interpreter, found {python}")
        return python.absolute()
    accelerator = "cuda" if plan.device.startswith("cuda") else "cpu"
    try:
        return environments.ensure(
            plan.key.framework,
            accelerator,
            allow_large=plan.settings.fetch,
            progress=_say,
            wheels=_wheels(plan, accelerator),
        )
    except (EnvironmentMissing, LargeDownload) as error:
        raise EnvironmentProblem(str(error)) from error
    except OSError as error:
        raise StorageProblem(f"the environment of {plan.key.framework} cannot be made: {error}") from error


def _check_loader(plan: Plan, python: Path) -> None:
    """Refuse loader=dali where the interpreter has no DALI; what a container has its worker finds out."""
    if plan.settings.loader != "dali":
        return
    look = (
        "from importlib.util import find_spec as f; raise SystemExit(not (f('nvidia') and f('nvidia.dali')))"
    )
    if subprocess.run([str(python), "-s", "-c", look], capture_output=True, check=False).returncode:
        raise EnvironmentProblem(
            f"loader: expected nvidia.dali in the interpreter of {plan.key.framework}, found none; install "
            "nvidia-dali-cuda130 in one of your own and give it as framework.python, or use loader=native"
        )


def _wheels(plan: Plan, accelerator: str) -> Path | None:
    """The bundle's wheels, where there is a bundle and something to install: then nothing is fetched."""
    wanted = environments.plan(plan.key.framework, accelerator)
    if plan.bundle is None or wanted.ready:
        return None
    found = plan.bundle.wheels(wanted.name)
    if found is None:
        raise EnvironmentProblem(
            f"bundle {plan.bundle.folder}: expected the wheels {wanted.name}, found none: make it with "
            f"ACCELERATOR={accelerator}, or choose another RUNTIME"
        )
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def findings_before(plan: Plan) -> list[Finding]:
    """What the checker would say of this run's header."""
    rules = rulebook.load(plan.rules_version)
    return check_header(plan.header(rules), rules)


def declare_differences(plan: Plan) -> Plan:
    """In open, what departs from closed is declared; anything else that the rules reject refuses the run."""
    plan = plan.with_(changes=_changes(plan))
    if plan.division == "open" or plan.own != NO_OWN_CODE:
        plan = plan.with_(differences=tuple(_differences(plan)))
    rejected = [finding for finding in findings_before(plan) if finding.severity == "reject"]
    if rejected:
        lines = [f"{f.rule}: expected {f.expected}, found {f.actual}. {f.mend}" for f in rejected]
        raise RuleProblem("the checker would reject this run:\n  " + "\n  ".join(lines))
    return plan


def _changes(plan: Plan) -> bytes:
    """changes.patch: what was changed, where it has to be shown: own code, or a tree with edits in open."""
    if plan.own == NO_OWN_CODE and plan.division != "open":
        return b""
    return changes_patch(plan.own, plan.key.workload, plan.key.framework, plan.rules_version)


def _differences(plan: Plan) -> list[tuple[str, str]]:
    """The rules of closed that this run departs from, each with what it does instead."""
    rules = rulebook.load(plan.rules_version)
    judged = "practice" if plan.division == "practice" else "closed"
    findings = check_header({**plan.header(rules), "division": judged, "differences": []}, rules)
    found: dict[str, str] = {}
    for finding in findings:
        if finding.severity == "reject" and finding.rule.startswith(DEPARTURES):
            found.setdefault(finding.rule, f"expected {finding.expected}; this run: {finding.actual}"[:400])
    return sorted(found.items())
