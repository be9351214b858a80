"""``dry=true``: print what a run would do and fetch, and every rule that it would break; do nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from suite.cli.estimate import expected_time, warnings_of
from suite.cli.guard import relative, storage_problems
from suite.contract import MEASURED_STEPS, WARMUP_STEPS, ConversionKey
from suite.datasets import catalogue
from suite.datasets.errors import DatasetError
from suite.datasets.prepare import available
from suite.environments import environments
from suite.harness.attempts import next_attempt
from suite.log.units import count
from suite.plan import images, prepare
from suite.plan.custom import custom_code
from suite.plan.errors import EnvironmentProblem, Refusal, RuleProblem
from suite.plan.header import CheckedHeader, checked_header
from suite.plan.plan import Plan
from suite.plan.prepared import Dataset
from suite.workloads import specification


def show(plan: Plan) -> int:
    """Print the plan; 0, or the exit code of the refusal."""
    lines = [("what", description(plan)), ("run id", f"{plan.run_id} (the time and last part change)")]
    lines += [("why", text) for text in plan.why]
    lines += [("division", plan.division), ("rules", plan.rules_version)]
    if plan.settings.bundle is not None:
        lines.append(
            ("bundle", f"{plan.settings.bundle.name}: its files are verified by the run, not by this command")
        )
    lines += [("data", _data(plan)), ("environment", _environment(plan)), ("disk", _disk(plan))]
    lines += [("time", expected_time(plan)[1])]
    lines += [("warning", text) for text in warnings_of(plan)]
    for name, text in lines:
        print(f"{name:<12} {text}")
    return _findings(plan)


def description(plan: Plan) -> str:
    """What a run measures, in one line."""
    key, where = plan.key, f"{plan.runtime} on {plan.device}, {count(plan.threads, 'thread')}"
    repeats = count(plan.repeats, "repeat")
    if isinstance(key, ConversionKey):
        size = f"{key.batch} images per shard, {key.scale} scale, cache {key.cache}"
        steps = f"{WARMUP_STEPS} + {MEASURED_STEPS} shards"
        return f"images of {key.workload} to {key.storage}: {size}; {repeats} of {steps}, {where}"
    batch = f"batch {key.batch}" + (f" on each of {key.devices} devices" if key.devices > 1 else "")
    size = f"{key.variant}, {batch}, {key.precision}"
    size += f", {key.scale} scale, {key.data} data, cache {key.cache}"
    if plan.settings.mode == "quality":
        steps = f"at most {plan.max_epochs} epochs, to {plan.target}"
    else:
        steps = f"{WARMUP_STEPS} + {plan.measured_steps:,} steps"
        if plan.settings.min_seconds is not None:
            steps = f"{WARMUP_STEPS} steps and a window of {plan.settings.min_seconds} s or more"
    what = f"{key.workload} in {key.framework}: {key.phase_and_scenario}"
    return f"{what}, {size}; {repeats} of {steps}, {where}"


def _data(plan: Plan) -> str:
    if _synthetic(plan):
        return "synthetic: seeded batches made in the worker; nothing is read or fetched"
    name = specification(plan.key.workload).DATASETS[plan.key.scale]
    if _reads(plan) != "files":
        stored = f"{name}-{plan.settings.storage}"
        if (plan.settings.data_root / stored).is_dir():
            return f"{stored}: present; verified by the run, not by this command"
        command = f"make preprocess WORKLOAD={plan.key.workload} TO={plan.settings.storage} MEASURE=0"
        return f"{stored}: missing; run `{command}` first"
    entry = catalogue.entry(name)
    size = f"{entry.bytes / 1e6:.1f} MB" if entry.bytes else "size not recorded"
    try:
        ready = available(name, plan.settings.data_root)
    except DatasetError as error:
        return f"{name}: {error}"
    if ready:
        return f"{name}: ready, {size}"
    if entry.kind == "mini":
        return f"{name}: will be generated, {size}; nothing is fetched"
    command = f"make data WORKLOAD={plan.key.workload}" + ("" if entry.fetchable else " FROM=path")
    return f"{name}: missing; run `{command}` first"


def _environment(plan: Plan) -> str:
    if plan.engine is not None:
        return f"{plan.engine.name} {plan.engine.version}: {images.describe(plan)}"
    if plan.settings.python is not None:
        return "framework.python: custom interpreter"
    try:
        wanted = environments.plan(plan.key.framework, plan.accelerator)
    except environments.EnvironmentMissing as error:
        raise EnvironmentProblem(str(error)) from error
    if wanted.ready:
        return f"{wanted.name}: ready"
    fetched = f"{wanted.download_bytes / 1e6:.0f} MB fetched, {wanted.disk_bytes / 1e6:.0f} MB on disk"
    return f"{wanted.name}: will be made: {fetched}, about {wanted.seconds} s"


def _disk(plan: Plan) -> str:
    converts = isinstance(plan.key, ConversionKey)
    wanted = plan.settings.data_root if converts else plan.settings.results_dir
    folder = next(p for p in (wanted, *wanted.parents) if p.exists())
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize / 1e9
    if converts:
        made = f"{specification(plan.key.workload).DATASETS[plan.key.scale]}-{plan.settings.storage}"
        return f"{made} in {relative(plan.settings.data_root)}, larger than its source; {free:.0f} GB free"
    return f"about 1 MB of log in {relative(plan.settings.results_dir)}; {free:.0f} GB free"


def _findings(plan: Plan) -> int:
    """Print every finding of the rules with its fix; returns 0 or the exit code of the refusal."""
    try:
        prepare.check_path_options(plan)
        prepare.prepare_bundle(plan, dry=True)
        header = header_of(plan)
    except Refusal as error:
        print(f"{'refused':<12} {error}")
        return error.code
    for row in header.data["differences"]:
        print(f"{'departs':<12} {row['rule']}: {row['reason']}")
    for finding in header.findings:
        text = f"{finding.rule} at {finding.location}: expected {finding.expected}, found {finding.found}. "
        text += finding.fix
        print(f"{finding.severity:<12} {text}")
    print(f"{'verdict':<12} the rules reject nothing in this run")
    return 0


def header_of(plan: Plan) -> CheckedHeader:
    """The header of the run, as far as it is known before the preparation. Raises a Refusal."""
    dataset, image = _assumed_data(plan), _assumed_image(plan)
    if plan.settings.batch_max:  # the search has not run: ID-009 would compare "max" with its first batch
        shown = tuple(
            text for text in plan.settings.overrides if text.partition("=")[0].lstrip("+") != "batch"
        )
        plan = replace(plan, settings=replace(plan.settings, overrides=shown))
    with storage_problems():
        attempt = next_attempt(plan.settings.results_dir, plan.key)
    return checked_header(plan, dataset, image, custom_code(plan.settings, plan.accelerator), attempt)


def _synthetic(plan: Plan) -> bool:
    return not isinstance(plan.key, ConversionKey) and plan.key.data == "synthetic"


def _reads(plan: Plan) -> str:
    """The storage format that is read."""
    return "files" if isinstance(plan.key, ConversionKey) else plan.settings.storage


def _assumed_image(plan: Plan) -> Mapping[str, Any] | None:
    """The expected `image` of the header: a dry run pulls and builds none."""
    if plan.engine is None:
        return None
    if plan.settings.image is None and (refused := images.refusal_before_pulling(plan)) is not None:
        raise RuleProblem(f"image: {refused}")
    return images.expected_image_header(plan)


def _assumed_data(plan: Plan) -> Dataset:
    """The dataset, or the expected one if it will be generated. Raises a Refusal if it is missing."""
    if _synthetic(plan):
        return prepare.prepare_data(plan)
    entry = catalogue.entry(specification(plan.key.workload).DATASETS[plan.key.scale])
    generated = entry.kind == "mini" and _reads(plan) == "files"
    if not generated or (plan.settings.data_root / entry.name).exists():
        return prepare.prepare_data(plan)
    return Dataset(entry.name, entry.kind, entry.digest or "", entry.count, entry.bytes or 0, entry.generator)
