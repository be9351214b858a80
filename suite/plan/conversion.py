"""From settings to the plan of a conversion: dataset images into a storage format, without a model."""

from __future__ import annotations

from suite import rules as rulebook
from suite.contract import ConversionKey
from suite.plan.errors import BadConfiguration, Unsupported
from suite.plan.machine import Machine
from suite.plan.plan import Plan, new_run_id
from suite.plan.runtime import FindEngine, choose_runtime, limits_of, threads_of
from suite.plan.settings import Settings
from suite.workloads import specification
from suite.workloads.storage import BATCHES

# The values that options of a model must keep in a conversion; None: not given.
_UNUSED = {
    "scenario": "offline",
    "mode": "throughput",
    "precision": "fp32",
    "loader": "native",
    "variant": None,
    "repeats": None,
    "steps": None,
    "min_seconds": None,
    "bucket_mib": None,
    "pair": None,
}


def resolve_conversion(settings: Settings, machine: Machine, find: FindEngine) -> Plan:
    """The plan of the conversion that ``settings`` describe, on ``machine``; raises a Refusal."""
    why: list[str] = []
    scale = _scale(settings, why)
    _require_convertible(settings, scale)
    chosen = choose_runtime(settings, machine, find)
    key = ConversionKey(
        workload=settings.workload,
        framework=settings.framework,
        storage=settings.storage,
        batch=settings.batch or BATCHES[scale][0],
        scale=scale,
        cache=settings.cache,
        encoding=settings.encoding,
    )
    division = division_of(settings, scale)
    rules = rules_of(scale)
    return Plan(
        settings=settings,
        run_id=new_run_id(key, settings.mode),
        key=key,
        division=division,
        rules_version=rules.version,
        runtime=chosen.name,
        engine=chosen.engine,
        limits=limits_of(settings, chosen),
        affinity=settings.limits.cpuset if chosen.engine is None else None,
        hyper={},
        device="cpu",
        device_ids=(),
        found_visible=machine.visible,
        threads=threads_of(settings, machine, small_steps=False),
        repeats=rules.limits["modes"]["throughput"]["repeats"],
        measured_steps=rules.limits["counts"]["measured_steps"],
        soak_ns=rules.limits["soak_ns"],
        tail_ns=0,
        max_epochs=0,
        target="",
        better="higher",
        why=(*why, *chosen.why),
        driver=machine.driver,
    )


def rules_of(scale: str) -> rulebook.Rules:
    """The rules that a job of ``scale`` is under."""
    return rulebook.load("practice" if scale == "mini" else rulebook.LATEST)


def division_of(settings: Settings, scale: str) -> str:
    """The division of a job of ``scale``; BadConfiguration if the requested one requires another scale."""
    natural = "practice" if scale == "mini" else "open"
    division = natural if settings.division == "auto" else settings.division
    if (division == "practice") != (scale == "mini"):
        raise BadConfiguration(
            f"division: scale {scale} goes with {natural}, found {division}; choose another SCALE, or leave "
            "DIVISION out"
        )
    return division


def _scale(settings: Settings, why: list[str]) -> str:
    if settings.scale != "auto":
        return settings.scale
    name = specification(settings.workload).DATASETS["reference"]
    if (settings.data_root / name).exists():  # complete or not: the run verifies it before it begins
        why.append(f"scale reference: {name} exists")
        return "reference"
    why.append(f"scale mini: {name} is not prepared (make data WORKLOAD={settings.workload} FROM=path)")
    return "mini"


def _require_convertible(settings: Settings, scale: str) -> None:
    """Refuse datasets that are not images in folders, and options that need a model."""
    name = specification(settings.workload).DATASETS[scale]
    if not rules_of(scale).holds_images(name):
        raise BadConfiguration(
            f"workload: a conversion needs a dataset with one folder of images per class; "
            f"{settings.workload} reads {name}, which is none"
        )
    for option, value in _UNUSED.items():
        if (found := getattr(settings, option)) != value:
            raise BadConfiguration(
                f"{option}: a conversion has no model; expected {value or 'none'}, found {found}"
            )
    if settings.data not in ("auto", "real"):
        raise BadConfiguration(
            f"data: a conversion reads the dataset's files; expected real, found {settings.data}"
        )
    if settings.hyper:
        raise BadConfiguration("workload.hyper: a conversion has no model; expected none, found some")
    if settings.batch_max:
        raise BadConfiguration(
            "batch: expected a number of images per shard, found max: a conversion has no largest batch"
        )
    if settings.devices > 1:
        raise Unsupported(f"devices: expected 1, found {settings.devices}; a conversion runs on the CPU only")
