"""From settings to the plan of a conversion: a dataset of images into a storage format, without a model."""

from __future__ import annotations

from suite import rules as rulebook
from suite.contract import ConversionKey
from suite.plan.errors import BadConfiguration, Unsupported
from suite.plan.machine import Machine
from suite.plan.plan import Plan, new_run_id
from suite.plan.runtime import Find, choose_runtime, limits_of, threads_of
from suite.plan.settings import Settings
from suite.workloads import specification
from suite.workloads.storage import BATCHES

# What the options of a model must be left at; None: not given.
_UNUSED = {
    "scenario": "offline",
    "mode": "throughput",
    "precision": "fp32",
    "loader": "native",
    "variant": None,
    "pair": None,
}


def resolve_conversion(settings: Settings, machine: Machine, find: Find) -> Plan:
    """The plan of the conversion that ``settings`` ask for, on ``machine``; raises a Refusal."""
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
        hyper={},
        device="cpu",
        device_ids=(),
        found_visible=machine.visible,
        threads=threads_of(settings, machine, small_steps=False),
        repeats=rules.limits["modes"]["throughput"]["repeats"],
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
    """The division of a job of ``scale``; BadConfiguration where the one asked for has another scale."""
    natural = "practice" if scale == "mini" else "open"
    division = natural if settings.division == "auto" else settings.division
    if (division == "practice") != (scale == "mini"):
        raise BadConfiguration(f"division: scale {scale} goes with {natural}, found {division}")
    return division


def _scale(settings: Settings, why: list[str]) -> str:
    if settings.scale != "auto":
        return settings.scale
    name = specification(settings.workload).DATASETS["reference"]
    if (settings.data_root / name).exists():  # whole or not: the run looks at it before it begins
        why.append(f"scale reference: {name} is there")
        return "reference"
    why.append(f"scale mini: {name} is not prepared (make data WORKLOAD={settings.workload} FROM=path)")
    return "mini"


def _require_convertible(settings: Settings, scale: str) -> None:
    """Refuse a dataset that is not images in folders, and what only a job with a model has."""
    name = specification(settings.workload).DATASETS[scale]
    if not rules_of(scale).holds_images(name):
        raise BadConfiguration(
            f"workload: a conversion is of images in a folder for each class, and {settings.workload} "
            f"reads {name}"
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
        raise BadConfiguration("batch: a conversion has images in shards and no largest batch, found max")
    if settings.devices > 1:
        raise Unsupported(
            f"devices: expected 1, found {settings.devices}; a conversion runs on the processor alone"
        )
