"""The runtime: a container if a GPU or ``closed`` requires one and an engine answers, else native."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

from suite.containers.engines import pyxis
from suite.containers.engines.container import Limits, unenforced_limits
from suite.log.processors import compact_list, expand_list
from suite.plan.errors import BadConfiguration, Unsupported
from suite.plan.limits import SHARED_MEMORY, first_given
from suite.plan.machine import Machine
from suite.plan.settings import Settings

FindEngine = Callable[[str, bool], Any]  # suite.containers.engines.choice.find
_GPU_REASON = "a GPU requires a container"
_LIMIT_REASON = "a limit requires a container"
_AFFINITY = "the cpuset is the affinity of the worker"


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The runtime, its engine (None: native), and the reason if the user left the choice to the suite."""

    name: str
    engine: Any
    why: tuple[str, ...]


def choose_runtime(settings: Settings, machine: Machine, find: FindEngine) -> RuntimeChoice:
    """The runtime of ``settings`` on ``machine``; Unsupported if the requested engine does not answer."""
    chosen = _choose(settings, machine, find)
    if chosen.engine is None:
        _refuse_container_options(settings)
    elif settings.python is not None and settings.image is None:
        raise BadConfiguration(
            "framework.python: expected runtime=native, or image=... in which the interpreter is, found "
            f"runtime {chosen.name} with the suite's image, which has its own interpreter"
        )
    return chosen


def limits_of(settings: Settings, chosen: RuntimeChoice) -> Limits:
    """The limits of the run: those of the settings, and the shared memory of every container."""
    asked = settings.limits
    if chosen.engine is None:
        return Limits()  # a cpuset is the affinity of the worker
    if (refused := unenforced_limits(chosen.engine.runtime, asked)) is not None:
        raise Unsupported(f"runtime: {refused}")
    shared = asked.shm_bytes or (None if "shm_bytes" in chosen.engine.runtime.not_enforced else SHARED_MEMORY)
    return Limits(asked.cpus, asked.cpuset, asked.memory_bytes, shared)


def threads_of(settings: Settings, machine: Machine, small_steps: bool) -> int:
    """Threads of each rank: its share of the processors of the run, or one for ``small_steps``."""
    if settings.threads is not None:
        return settings.threads
    if small_steps:
        return 1
    asked, most = settings.limits, machine.cores
    if asked.cpuset is not None:
        most = min(most, len(expand_list(asked.cpuset)))
    if asked.cpus is not None:
        most = min(most, int(Decimal(asked.cpus).to_integral_value(ROUND_CEILING)))
    return max(1, most // settings.devices_per_node)


def _choose(settings: Settings, machine: Machine, find: FindEngine) -> RuntimeChoice:
    wanted = settings.runtime
    if wanted == "native":
        return RuntimeChoice("native", None, ())
    if wanted == "auto" and settings.python is not None and settings.image is None:
        return RuntimeChoice(
            "native", None, ("runtime native: framework.python is an interpreter of this machine",)
        )
    reason = _reason_for_container(settings, machine)
    if wanted == "auto" and reason is None:
        return RuntimeChoice("native", None, ("runtime native: nothing requires a container",))
    found = find(wanted, bool(machine.gpus))
    tried = "; ".join(found.tried)
    if found.engine is not None:
        if found.engine.name == "enroot" and _in_slurm_job(settings) and pyxis.available():
            found.engine.start_with(pyxis.Pyxis())
        why = (f"runtime {found.engine.name}: {reason}" + (f" ({tried})" if tried else ""),)
        return RuntimeChoice(found.engine.name, found.engine, why if wanted == "auto" else ())
    if wanted != "auto":
        way_out = "" if settings.division == "closed" else "; RUNTIME=native needs no engine"
        raise Unsupported(f"runtime: {wanted} does not answer on this machine ({tried}){way_out}")
    if reason == _LIMIT_REASON and settings.limits.names() == ("cpuset",):
        return RuntimeChoice("native", None, (f"runtime native: no engine answers ({tried}); {_AFFINITY}",))
    if reason != _GPU_REASON:
        way_out = ", or choose DIVISION=open" if settings.division == "closed" else ""
        raise Unsupported(
            f"runtime: {reason}, and no engine answers ({tried}): install or start one{way_out}"
        )
    return RuntimeChoice("native", None, (f"runtime native: no engine answers ({tried})",))


def _in_slurm_job(settings: Settings) -> bool:
    return settings.slurm is not None and settings.slurm.on_node


def _reason_for_container(settings: Settings, machine: Machine) -> str | None:
    if settings.image is not None:
        return "a custom image requires a container"
    if settings.division == "closed":
        return "the closed division requires a container"
    if settings.limits.names():
        return _LIMIT_REASON
    return _GPU_REASON if machine.gpus else None


def _refuse_container_options(settings: Settings) -> None:
    """Refuse options that only a container can fulfil."""
    if (name := first_given(replace(settings.limits, cpuset=None))) is not None:
        raise Unsupported(
            f"runtime.{name}: runtime native cannot enforce a limit; use RUNTIME=docker or podman"
        )
    if settings.limits.cpuset is not None:
        allowed = os.sched_getaffinity(0)
        if missing := sorted(set(expand_list(settings.limits.cpuset)) - allowed):
            raise Unsupported(
                f"runtime.cpuset: expected processors among {compact_list(allowed)}, found "
                f"{compact_list(missing)}"
            )
    if settings.image is not None:
        raise BadConfiguration("image: expected a container runtime such as RUNTIME=docker, found native")
