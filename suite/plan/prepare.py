"""Prepare data, environment and the rule pre-check: all steps between a plan and its first repeat."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from suite import rules as rulebook
from suite.common.support import decodes_on_gpu
from suite.containers.engines.workers import NativeWorkers
from suite.containers.images.bundle import Bundle, described_bundle, open_bundle
from suite.containers.images.bundle_manifest import BundleProblem
from suite.contract import CONVERSION, ConversionKey, Key
from suite.contract.traits import traits_of
from suite.datasets import catalogue
from suite.datasets import errors as dataset_errors
from suite.datasets.prepare import missing_weights
from suite.datasets.prepare import prepare as prepare_dataset
from suite.datasets.record_folder import prepare_stored
from suite.environments import environments
from suite.environments.errors import EnvironmentMissing, LargeDownload
from suite.plan.custom import CustomCode, custom_code
from suite.plan.errors import DatasetProblem, EnvironmentProblem, StorageProblem
from suite.plan.header import checked_header
from suite.plan.images import prepare_image
from suite.plan.plan import Plan
from suite.plan.prepared import Dataset, PreparedRun, Resources
from suite.workloads import specification

_NEEDED_BYTES = 64 << 20


def prepare_resources(plan: Plan) -> Resources:
    """Prepare the dataset and the environment of the workers of ``plan``. Raises a Refusal."""
    bundle = prepare_bundle(plan)
    dataset = prepare_data(plan, bundle)
    return prepare_workers(plan, dataset, bundle)


def prepare_run(plan: Plan, resources: Resources, attempt: int) -> PreparedRun:
    """The run with its header, which the rules checked. RuleProblem if they would reject the result."""
    header = checked_header(plan, resources.dataset, resources.image, resources.custom, attempt)
    return PreparedRun(plan, resources, attempt, header.files, header.data)


def check_path_options(plan: Plan) -> None:
    """StorageProblem that names every path option whose folder cannot be written or whose disk is full."""
    names = ["results_dir", "cache_dir", *(["data_root"] if _writes_data(plan) else [])]
    problems = [(name, _problem(getattr(plan.settings, name))) for name in names]
    found = [f"{name}: {problem}" for name, problem in problems if problem]
    if found:
        options = ", ".join(name.upper() for name, problem in problems if problem)
        raise StorageProblem(
            f"{'; '.join(found)}. Set {options} to a folder that can be written, with free space"
        )


def _writes_data(plan: Plan) -> bool:
    """Whether the run writes below ``data_root``: a conversion, or a dataset that is not there yet."""
    if isinstance(plan.key, ConversionKey):
        return True
    name = specification(plan.key.workload).DATASETS[plan.key.scale]
    generated = plan.key.data == "real" and plan.settings.storage == "files"
    return generated and not (plan.settings.data_root / name).exists()


def _problem(folder: Path) -> str | None:
    """Why nothing can be written below ``folder``, which need not exist; None if it can."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        return f"expected a folder, found a file at {existing}"
    state = os.statvfs(existing)
    if not os.access(existing, os.W_OK | os.X_OK) or state.f_flag & os.ST_RDONLY:
        return f"{folder} cannot be written"
    free = state.f_bavail * state.f_frsize
    if free < _NEEDED_BYTES:
        return f"expected {_NEEDED_BYTES >> 20} MiB free at {folder}, found {free >> 20} MiB"
    return None


def prepare_bundle(plan: Plan, dry: bool = False) -> Bundle | None:
    """The bundle of ``plan`` with all files verified, or if ``dry`` its manifest alone; None without one."""
    path = plan.settings.bundle
    if path is None:
        return None
    if not dry:
        _say(f"verifying the bundle {path.name}")
    try:
        bundle = described_bundle(path) if dry else open_bundle(path)
        bundle.require(plan.key.workload, plan.key.framework)
    except BundleProblem as error:
        raise EnvironmentProblem(str(error)) from error
    return bundle


def prepare_data(plan: Plan, bundle: Bundle | None = None) -> Dataset:
    """The dataset of ``plan``: generated, verified, or the stream of synthetic batches."""
    spec = specification(plan.key.workload)
    if not isinstance(plan.key, ConversionKey) and plan.key.data == "synthetic":
        digest = rulebook.synthetic_digest(plan.key)
        return Dataset(f"{spec.NAME}-synthetic", "synthetic", digest, 0, 0, "synthetic/1")
    name = spec.DATASETS[plan.key.scale]
    try:
        if bundle is not None:
            bundle.copy_dataset(name, plan.settings.data_root)
        if plan.kind == CONVERSION or plan.settings.storage == "files":
            ready = prepare_dataset(name, plan.settings.data_root)
        else:
            ready = prepare_stored(name, plan.settings.storage, plan.settings.data_root)
    except dataset_errors.StorageError as error:
        raise StorageProblem(str(error)) from error
    except dataset_errors.DatasetError as error:
        raise DatasetProblem(str(error)) from error
    if plan.settings.mode == "quality" and (lacks := missing_weights(catalogue.entry(name), ready.path)):
        raise DatasetProblem(f"{ready.path}: {lacks}")
    return Dataset(
        ready.name,
        ready.kind,
        ready.digest,
        ready.count,
        ready.bytes,
        ready.generator,
        ready.path,
        tuple(ready.paths),
    )


def prepare_workers(plan: Plan, dataset: Dataset, bundle: Bundle | None = None) -> Resources:
    """``dataset`` with the workers' environment: an interpreter (created at first use) or an image."""
    custom = custom_code(plan.settings, plan.accelerator)
    if plan.engine is not None:
        image, in_containers = prepare_image(plan, custom, bundle, _say)
        return Resources(dataset, in_containers, image, custom)
    return Resources(dataset, _native_workers(plan, custom, bundle), None, custom)


def _native_workers(plan: Plan, custom: CustomCode, bundle: Bundle | None) -> NativeWorkers:
    python = _python(plan, bundle)
    return NativeWorkers(
        python,
        plan.threads,
        plan.settings.wait_policy,
        plan.visible_devices,
        custom.pair,
        plan.affinity,
        plan.variables,
        _loader_packages(plan, python),
    )


def _python(plan: Plan, bundle: Bundle | None) -> Path:
    if plan.settings.python is not None:
        python = Path(plan.settings.python).expanduser()
        if not python.is_file() or not os.access(python, os.X_OK):
            raise EnvironmentProblem(f"framework.python: expected an interpreter, found {python}")
        return python.absolute()
    wheels = _wheels(plan, bundle)
    return _ensured(
        plan.key.framework,
        lambda: environments.ensure(
            plan.key.framework,
            plan.accelerator,
            allow_large=plan.settings.fetch,
            progress=_say,
            wheels=wheels,
        ),
    )


def _ensured(name: str, ensure: Callable[[], Path]) -> Path:
    """The interpreter that ``ensure`` returns; a problem of the run where it cannot be made."""
    try:
        return ensure()
    except (EnvironmentMissing, LargeDownload) as error:
        raise EnvironmentProblem(str(error)) from error
    except OSError as error:
        raise StorageProblem(f"the environment of {name} cannot be made: {error}") from error


def _loader_packages(plan: Plan, python: Path) -> Path | None:
    """The folder with DALI for loader=dali, made at its first use; None for other loaders.

    A custom interpreter must have what the loader imports. In a container the worker finds out.
    """
    key, loader = plan.key, plan.settings.loader
    if plan.settings.python is None:
        if loader != "dali":
            return None
        _ensured("DALI", lambda: environments.ensure_tools("dali", _say))
        return environments.tools_plan("dali").packages_folder
    if loader == "dali":
        package, project, other = "nvidia.dali", "nvidia-dali-cuda130", "native"
    elif isinstance(key, Key) and decodes_on_gpu(key, plan.accelerator, loader):
        package = project = traits_of(key.framework).gpu_decoder
        other = "pillow"
    else:
        return None
    code = f"from importlib.util import find_spec; raise SystemExit(find_spec({package!r}) is None)"
    if subprocess.run([str(python), "-s", "-c", code], capture_output=True, check=False).returncode:
        raise EnvironmentProblem(
            f"loader: expected {package} in the interpreter framework.python, found none: install "
            f"{project} there, or use loader={other}"
        )
    return None


def _wheels(plan: Plan, bundle: Bundle | None) -> Path | None:
    """The folder of the bundle's wheels; None without a bundle or if the environment exists."""
    wanted = environments.plan(plan.key.framework, plan.accelerator)
    if bundle is None or wanted.ready:
        return None
    found = bundle.wheels(wanted.name)
    if found is None:
        raise EnvironmentProblem(
            f"bundle {bundle.folder}: expected the wheels {wanted.name}, found none: make the bundle with "
            f"ACCELERATOR={plan.accelerator}, or choose another RUNTIME"
        )
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
