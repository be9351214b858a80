"""``launcher=slurm`` on the login node: plan, prepare what needs the network, and submit the job."""

from __future__ import annotations

import sys
from dataclasses import replace

from suite.containers.engines import choice as engines
from suite.contract import CONVERSION, Key
from suite.launch.slurm import launch, login_scale
from suite.plan import prepare
from suite.plan.machine import Gpu, Machine, detect_machine
from suite.plan.options import RUN_PATHS
from suite.plan.plan import Plan
from suite.plan.resolve import resolve
from suite.plan.settings import Settings
from suite.plan.slurm_options import SlurmOptions

_UNKNOWN_MEMORY = 1 << 40  # bytes; the node checks the memory of its GPUs


def submit_run(settings: Settings, options: SlurmOptions, measure: bool = True) -> int:
    """Submit the run of ``settings`` as a job and follow it; returns its exit code. Raises a Refusal.

    Without ``measure`` the job only converts the dataset.
    """
    machine = detect_machine()
    scale, why = login_scale(settings.scale, options.gpus, len(machine.gpus))
    settings = replace(settings, scale=scale)
    gpus = options.gpus_for(scale, settings.devices_per_node)
    plan = resolve(settings, node_of(machine, gpus), lambda wanted, _: engines.find(wanted, need_gpu=False))
    for line in (why, *plan.why):
        print(line, file=sys.stderr)
    if not settings.dry:
        prepare.check_path_options(plan)
        prepare.prepare_run(plan, prepare.prepare_resources(plan), attempt=1)  # the node counts the attempt
    return launch(
        options,
        _command(settings, measure),
        name=f"{settings.workload}-{settings.framework}-{_job(settings)}",
        path_options={option.name: getattr(settings, option.name) for option in RUN_PATHS},
        decided=_decided(plan),
        devices=settings.devices_per_node,
        nodes=settings.nodes,
        dry=settings.dry,
    )


def node_of(machine: Machine, gpus: int) -> Machine:
    """A machine of the job as far as it is known: this machine, with the GPUs that the job requests."""
    requested = tuple(Gpu(f"GPU-{index}", "a GPU of the job", _UNKNOWN_MEMORY) for index in range(gpus))
    return replace(machine, gpus=requested, visible=None, driver=None)


def _decided(plan: Plan) -> dict[str, str]:
    """The options that the node must not decide again: only what they require is prepared."""
    data = {"data": plan.key.data} if isinstance(plan.key, Key) else {}
    return {"scale": plan.key.scale, **data, "runtime": plan.runtime}


def _job(settings: Settings) -> str:
    return CONVERSION if settings.kind == CONVERSION else settings.phase


def _command(settings: Settings, measure: bool) -> tuple[str, ...]:
    """The verb and the options for the node."""
    if settings.kind != CONVERSION:
        return ("node" if settings.nodes > 1 else "run", *settings.overrides)
    given = [text for text in settings.overrides if text.partition("=")[0] not in ("storage", "framework")]
    if settings.encoding != "file":
        kind, size = settings.encoding.split("-")
        given += [f"resize={size}", f"encode={kind}"]
    return ("preprocess", f"to={settings.storage}", f"measure={str(measure).lower()}", *given)
