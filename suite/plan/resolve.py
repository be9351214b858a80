"""From settings to a plan: every ``auto`` is decided, every impossible option is refused with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from suite import rules as rulebook
from suite.containers.engines import choice as engines
from suite.contract import CONVERSION, FORWARD_BACKWARD, INDEPENDENT, LOAD, Key, Specification
from suite.contract.traits import traits_of
from suite.datasets.errors import DatasetError
from suite.datasets.prepare import available
from suite.plan.conversion import division_of, resolve_conversion
from suite.plan.errors import BadConfiguration, DatasetProblem, Unsupported, did_you_mean, one_of
from suite.plan.machine import Machine, select_gpus
from suite.plan.options import AUTO
from suite.plan.plan import Plan, new_run_id
from suite.plan.requirements import (
    require_batch_search_allowed,
    require_counts_allowed,
    require_exchange_options,
    require_possible,
    require_rules_of_workload,
)
from suite.plan.runtime import FindEngine, choose_runtime, limits_of, threads_of
from suite.plan.settings import Settings
from suite.workloads import specification

_REFERENCE_GPU_BYTES = 16 << 30  # a GPU with less memory does not hold the reference models' batches


def resolve(settings: Settings, machine: Machine, find: FindEngine | None = None) -> Plan:
    """The plan of ``settings`` on ``machine``; raises a Refusal. ``find`` finds a container engine."""
    spec = specification(settings.workload)
    machine = _with_chosen_gpus(settings, machine)
    if settings.kind == CONVERSION:
        return resolve_conversion(settings, machine, find or engines.find)
    chosen = choose_runtime(settings, machine, find or engines.find)
    on_gpu = _on_gpu(settings, machine, chosen.engine)
    why: list[str] = [] if machine.problem is None else [f"no GPU: {machine.problem}"]
    key = _requested_key(settings, machine, on_gpu, why)
    require_possible(settings, key, on_gpu, machine)
    require_exchange_options(settings, key)
    division = division_of(settings, key.scale)
    if settings.batch_max:
        require_batch_search_allowed(settings, key, division)
        why.append(f"batch max: probes before the run search the largest batch, starting at {key.batch}")
    rules_version = "practice" if division == "practice" else rulebook.LATEST
    rules = rulebook.load(rules_version)
    require_rules_of_workload(rules, settings.workload)
    limits = rules.limits
    # With several threads, a step of a few milliseconds takes up to three times as long: it waits for them.
    small_steps = key.scale == "mini" and not on_gpu
    if small_steps and settings.threads is None:
        why.append("threads 1: steps at mini scale are too short for more threads")
    mode = limits["modes"][settings.mode]
    require_counts_allowed(settings, division, rules)
    if settings.min_seconds is not None:
        why.append(f"min_seconds {settings.min_seconds}: an untimed pilot before the run decides the steps")
    quality = _quality(rules_version, settings, key)
    with_tail = settings.mode == "throughput" and settings.telemetry and key.scale == "reference"
    return Plan(
        settings=settings,
        run_id=new_run_id(key, settings.mode),
        key=key,
        division=division,
        rules_version=rules_version,
        runtime=chosen.name,
        engine=chosen.engine,
        limits=limits_of(settings, chosen),
        affinity=settings.limits.cpuset if chosen.engine is None else None,
        hyper=_hyper(settings, spec, key),
        device="cuda:0" if on_gpu else "cpu",
        device_ids=tuple(gpu.uuid for gpu in machine.gpus[: settings.devices_per_node]) if on_gpu else (),
        found_visible=machine.visible,
        threads=threads_of(settings, machine, small_steps),
        repeats=settings.repeats or mode["repeats"],
        measured_steps=settings.steps or limits["counts"]["measured_steps"],
        soak_ns=limits["soak_ns"] if settings.mode == "throughput" else 0,
        tail_ns=rules.tail_ns if with_tail else 0,
        max_epochs=quality["max_epochs"],
        target=quality["target"],
        better=quality.get("better", "higher"),
        why=(*why, *chosen.why),
        gpus=machine.gpus[: settings.devices_per_node] if on_gpu else (),
        driver=machine.driver,
        collective=_collective(settings, key, "cuda" if on_gpu else "cpu"),
    )


def requested_key(settings: Settings, machine: Machine) -> tuple[Key, str]:
    """The key and the division that ``settings`` of a benchmark request, even if this machine cannot run it.

    If the requested devices or runtime are missing, ``auto`` is decided as on a machine without them.
    """
    key = _requested_key(settings, machine, _on_gpu(settings, machine, None), [])
    return key, division_of(settings, key.scale)


def _on_gpu(settings: Settings, machine: Machine, engine: object) -> bool:
    # Outside a container a framework may have no build for current GPUs.
    native = "cuda" in traits_of(settings.framework).native_devices
    return bool(machine.gpus) and (native or engine is not None)


def _requested_key(settings: Settings, machine: Machine, on_gpu: bool, why: list[str]) -> Key:
    spec = specification(settings.workload)
    scale = _scale(settings, machine, on_gpu, why)
    key = _key(settings, spec, scale, _data(settings, spec, scale, why))
    return _with_countable_units(settings, spec, key, why)


def _with_chosen_gpus(settings: Settings, machine: Machine) -> Machine:
    chosen = select_gpus(machine, settings.device_selection)
    if chosen is None:
        found = ", ".join(f"{at} ({gpu.uuid})" for at, gpu in enumerate(machine.gpus)) or "no GPU"
        asked = ",".join(settings.device_selection)
        raise Unsupported(f"devices: expected [{asked}], each a GPU of its own, found {found}")
    return chosen


def _scale(settings: Settings, machine: Machine, on_gpu: bool, why: list[str]) -> str:
    if settings.scale != "auto":
        return settings.scale
    if on_gpu and machine.gpus[0].memory_bytes >= _REFERENCE_GPU_BYTES:
        why.append(f"scale reference: {machine.gpus[0].name} has enough memory")
        return "reference"
    why.append(
        "scale mini: no GPU with enough memory for the published model; the numbers are for practice only"
    )
    return "mini"


def _data(settings: Settings, spec: Specification, scale: str, why: list[str]) -> str:
    if settings.mode == "quality":
        if settings.data == "synthetic":
            raise BadConfiguration("data: quality mode trains on real data, found 'synthetic'")
        return "real"
    if settings.data != "auto":
        return settings.data
    if settings.storage != "files" or scale == "mini" or settings.kind == LOAD:
        return "real"
    try:
        ready = available(spec.DATASETS[scale], settings.data_root)
    except DatasetError as error:
        raise DatasetProblem(f"{error} (data=synthetic needs no dataset)") from error
    if ready:
        why.append(f"data real: {spec.DATASETS[scale]} is prepared")
        return "real"
    why.append(
        f"data synthetic: {spec.DATASETS[scale]} is not prepared (make data WORKLOAD={settings.workload})"
    )
    return "synthetic"


def _with_countable_units(settings: Settings, spec: Specification, key: Key, why: list[str]) -> Key:
    """``key``, with synthetic data if the units of real data are unknown and ``data`` is auto."""
    if settings.mode != "throughput":
        return key
    try:
        spec.units(key.of_batches, 0)
    except ValueError as error:
        text = str(error)
        if not _any_countable(spec, key):
            where = f"{key.scale} scale in this version, with any batch"
            text = f"real data of {key.workload} cannot be run at {where}; use data=synthetic"
        if settings.data != "auto" or key.scale == "mini":
            raise BadConfiguration(f"batch or data: {text}") from error
        why.append(f"data synthetic: {text}")
        return replace(key, data="synthetic")
    return key


def _any_countable(spec: Specification, key: Key) -> bool:
    """Whether the units of real data are known for a listed batch of the scale of ``key``."""
    for batch in spec.BATCHES[key.scale]:
        with suppress(ValueError):
            spec.units(replace(key.of_batches, batch=batch, devices=1), 0)
            return True
    return False


def _key(settings: Settings, spec: Specification, scale: str, data: str) -> Key:
    single = settings.phase == "infer" and settings.scenario == "single_stream"
    if settings.scenario == "single_stream" and settings.phase != "infer":
        raise BadConfiguration(f"scenario: single_stream goes with phase=infer, found {settings.phase}")
    if settings.scenario == FORWARD_BACKWARD:
        found = {"phase": settings.phase, "devices": settings.devices, "mode": settings.mode}
        for name, wanted in (("phase", "train"), ("devices", 1), ("mode", "throughput")):
            if found[name] != wanted:
                raise BadConfiguration(
                    f"scenario: {FORWARD_BACKWARD} goes with {name}={wanted}, found {found[name]}"
                )
    if single and settings.batch not in (None, 1):
        raise BadConfiguration(f"batch: single_stream has batch 1, found {settings.batch}")
    variant = settings.variant or spec.VARIANTS[scale][0]
    return Key(
        workload=settings.workload,
        framework=settings.framework,
        phase=settings.phase,
        scenario=settings.scenario,
        precision=settings.precision,
        batch=1 if single else settings.batch or _default_batch(settings, spec, scale),
        devices=settings.devices,
        nodes=settings.nodes,
        strategy=_strategy(settings),
        scale=scale,
        data=data,
        cache=settings.cache,
        variant=one_of("variant", variant, spec.VARIANTS[scale]),
    )


def _strategy(settings: Settings) -> str:
    """How the ranks exchange gradients; Unsupported for what the framework cannot do."""
    asked = settings.strategy
    if settings.devices == 1 or settings.phase != "train":
        if asked not in (AUTO, INDEPENDENT):
            others = "a load" if settings.kind == LOAD else "inference"
            why = "one device" if settings.devices == 1 else others
            raise BadConfiguration(f"strategy: {why} exchanges no gradients, found {asked}; leave it out")
        return INDEPENDENT
    traits = traits_of(settings.framework)
    if asked == AUTO and not traits.strategies:
        raise Unsupported(
            f"devices: expected 1, found {settings.devices}: the pairs of {settings.framework} exchange no "
            "gradients; train on one device, or use phase=infer"
        )
    if asked not in (AUTO, INDEPENDENT, *traits.strategies):
        why = traits.no_strategy.get(asked, "it is not built")
        able = " or ".join((*traits.strategies, INDEPENDENT))
        raise Unsupported(f"strategy: {settings.framework} has no {asked} here: {why}; use {able}")
    return traits.strategies[0] if asked == AUTO else asked


def _collective(settings: Settings, key: Key, device: str) -> str:
    """What moves the gradients; empty if the ranks exchange none. Unsupported if the framework has it not."""
    asked = settings.collective
    if not key.exchanges:
        return ""
    traits = traits_of(key.framework)
    able = traits.collectives[device]
    if settings.nodes > 1 and asked in traits.one_machine:
        raise Unsupported(f"collective: {asked} reaches the devices of one machine; use {able[0]}")
    if asked not in (AUTO, *able):
        names = " or ".join(able)
        raise Unsupported(f"collective: {key.framework} exchanges with {names} on {device}, found {asked}")
    return able[0] if asked == AUTO else asked


def _default_batch(settings: Settings, spec: Specification, scale: str) -> int:
    """The first batch of the list; for quality at reference scale the recipe's batch if there is one."""
    if spec.RECIPE_BATCH is None or settings.mode != "quality" or scale != "reference":
        return spec.BATCHES[scale][0]
    return spec.RECIPE_BATCH


def _hyper(settings: Settings, spec: Specification, key: Key) -> Mapping[str, str]:
    hyper = dict(spec.hyperparameters(key.scale, key.variant))
    for name, value in settings.hyper.items():
        if name not in hyper:
            raise BadConfiguration(f"workload.hyper: unknown name {name!r}{did_you_mean(name, hyper)}")
        hyper[name] = _checked_hyperparameter(f"workload.hyper.{name}", hyper[name], value)
    return hyper


def _checked_hyperparameter(name: str, default: str, value: str) -> str:
    """``value`` if it is a number like ``default``; the spelling of ``default`` if both are equal."""
    expected, found = _decimal(default), _decimal(value)
    if expected is None:
        return value
    if found is None:
        raise BadConfiguration(f"{name}: expected a number such as {default}, found {value!r}")
    return default if found == expected else value


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _quality(version: str, settings: Settings, key: Key) -> dict[str, Any]:
    """Target and maximum number of epochs of a quality run; empty values in throughput mode."""
    if settings.mode != "quality":
        return {"target": "", "max_epochs": 0}
    found = rulebook.load(version).workload(key.workload).get("quality", {}).get(key.variant)
    if found is None:
        raise Unsupported(
            f"mode: the rules {version} hold no quality target for {key.workload} {key.variant}"
        )
    return dict(found)
