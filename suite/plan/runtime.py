"""Which runtime: a container where a GPU or ``closed`` asks for one and an engine answers, else native."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from suite.containers.engines import pyxis
from suite.containers.engines.container import Limits, unenforced_limits
from suite.plan.errors import BadConfiguration, Unsupported
from suite.plan.limits import SHARED_MEMORY, first_given
from suite.plan.machine import Machine
from suite.plan.settings import Settings
from suite.telemetry.reading import expand_list

Find = Callable[[str, bool], Any]  # suite.containers.engines.choice.find


@dataclass(frozen=True, slots=True)
class Choice:
    """The runtime, its engine (None: native), and why it was chosen where the user left it open."""

    name: str
    engine: Any
    why: tuple[str, ...]


def choose_runtime(settings: Settings, machine: Machine, find: Find) -> Choice:
    """The runtime of ``settings`` on ``machine``; Unsupported where the one asked for does not answer."""
    chosen = _choose(settings, machine, find)
    if chosen.engine is None:
        _nothing_for_native(settings)
    elif settings.python is not None and settings.image is None:
        raise BadConfiguration(
            "framework.python: expected runtime=native, or image=... in which the interpreter is, found "
            f"runtime {chosen.name} with the suite's custom image, which has its interpreter"
        )
    return chosen


def limits_of(settings: Settings, chosen: Choice) -> Limits:
    """The limits of the run: those asked for, and the shared memory that every container gets."""
    asked = settings.limits
    if chosen.engine is None:
        return asked
    if (refused := unenforced_limits(chosen.engine.runtime, asked)) is not None:
        raise Unsupported(f"runtime: {refused}")
    shared = asked.shm_bytes or (None if "shm_bytes" in chosen.engine.runtime.not_enforced else SHARED_MEMORY)
    return Limits(asked.cpus, asked.cpuset, asked.memory_bytes, shared)


def threads_of(settings: Settings, machine: Machine, small_steps: bool) -> int:
    """Of each rank: its share of the processors that the run may use, or one for ``small_steps``."""
    if settings.threads is not None:
        return settings.threads
    if small_steps:
        return 1
    asked, most = settings.limits, machine.cores
    if asked.cpuset is not None:
        most = min(most, len(expand_list(asked.cpuset)))
    if asked.cpus is not None:
        most = min(most, int(Decimal(asked.cpus).to_integral_value(ROUND_CEILING)))
    return max(1, most // settings.devices)


def _choose(settings: Settings, machine: Machine, find: Find) -> Choice:
    wanted = settings.runtime
    if wanted == "native":
        return Choice("native", None, ())
    if wanted == "auto" and settings.python is not None and settings.image is None:
        return Choice("native", None, ("runtime native: framework.python is an interpreter of this machine",))
    asks = _who_asks(settings, machine)
    if wanted == "auto" and asks is None:
        return Choice("native", None, ("runtime native: no GPU asks for a container",))
    found = find(wanted, bool(machine.gpus))
    tried = "; ".join(found.tried)
    if found.engine is not None:
        if found.engine.name == "enroot" and _in_a_job(settings) and pyxis.available():
            found.engine.start_with(pyxis.Pyxis())
        why = (f"runtime {found.engine.name}: {asks}" + (f" ({tried})" if tried else ""),)
        return Choice(found.engine.name, found.engine, why if wanted == "auto" else ())
    if wanted != "auto":
        raise Unsupported(f"runtime: {wanted} does not answer here ({tried}); RUNTIME=native needs no engine")
    if asks != "a GPU asks for a container":
        raise Unsupported(f"runtime: {asks}, and no engine answers ({tried})")
    return Choice("native", None, (f"runtime native: no engine answers ({tried})",))


def _in_a_job(settings: Settings) -> bool:
    return settings.slurm is not None and settings.slurm.on_node


def _who_asks(settings: Settings, machine: Machine) -> str | None:
    if settings.image is not None:
        return "a custom image asks for a container"
    if settings.division == "closed":
        return "the closed division asks for a container"
    if settings.limits.names():
        return "a limit asks for a container"
    return "a GPU asks for a container" if machine.gpus else None


def _nothing_for_native(settings: Settings) -> None:
    """Refuse what only a container can do."""
    if (name := first_given(settings.limits)) is not None:
        raise Unsupported(
            f"runtime.{name}: nothing enforces a limit in runtime native; choose RUNTIME=docker or podman"
        )
    if settings.image is not None:
        raise BadConfiguration("image: expected a container runtime such as RUNTIME=docker, found native")
