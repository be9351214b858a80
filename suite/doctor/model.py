"""The subject of the doctor's checks, and the result of one check."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from suite import workloads
from suite.containers.engines.attestation import Engine
from suite.log.safe import safe
from suite.plan.machine import Machine, detect_machine
from suite.telemetry.facts import machine_facts

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
_LONGEST = 600  # characters: engines quote whole messages


class DoctorCheck:
    """The result of one check: ``name``, ``state`` (ok, warn, fail, skip), ``found``, and the ``fix``.

    Names of processes and messages of engines are not trusted: control characters are escaped.
    """

    __slots__ = ("fix", "found", "name", "state")

    def __init__(self, name: str, state: str, found: str, fix: str = "") -> None:
        if state in (WARN, FAIL) and not fix:
            raise ValueError(f"{name}: expected a fix with {state}, found none")
        self.name, self.state = name, state
        self.found, self.fix = safe(found, _LONGEST), safe(fix, _LONGEST)


@dataclass
class Subject:
    """The machine, and the runs that the user intends on it.

    ``frameworks``: the chosen ones, empty for all. ``start``: whether a container may be started. ``root``
    (for /), ``free_bytes`` and ``look`` are replaced in tests. ``engines``: the engines that answered so far.
    ``undo``: clean-up to run if a check is interrupted.
    """

    workload: str | None = None
    frameworks: tuple[str, ...] = ()
    runtime: str = "auto"
    start: bool = True
    data_root: Path = Path("data")
    results_dir: Path = Path("results")
    cache_dir: Path = Path(".cache")
    root: Path = Path("/")
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    look: Callable[[], Machine] = detect_machine
    engines: dict[str, Engine] = field(default_factory=dict)
    undo: list[Callable[[], None]] = field(default_factory=list)

    @cached_property
    def machine(self) -> Machine:
        """Cores, GPUs and driver, as in a plan."""
        return self.look()

    @cached_property
    def facts(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The machine's facts as in the log, and the reasons of nulls."""
        return machine_facts((), self.root)

    @property
    def needs_container(self) -> bool:
        """Whether the user needs a container: by option runtime, by framework, or because of a GPU."""
        named = self.runtime not in ("auto", "native") or bool(self.frameworks)
        return self.runtime != "native" and (named or bool(self.machine.gpus))

    @property
    def engine(self) -> Engine | None:
        """The engine that a run uses: the first that answers; with a GPU, the first with access to it."""
        able = [one for one in self.engines.values() if one.gpu_by is not None or not self.machine.gpus]
        return next(iter([*able, *self.engines.values()]), None)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The chosen (workload, framework) pairs."""
        return [
            (workload, framework)
            for workload in ([self.workload] if self.workload else workloads.names())
            for framework in workloads.frameworks(workload)
            if not self.frameworks or framework in self.frameworks
        ]

    @property
    def chosen_frameworks(self) -> list[str]:
        """The frameworks of :attr:`pairs`, in order."""
        return sorted({framework for _, framework in self.pairs})


CheckFunction = Callable[[Subject], Iterable[DoctorCheck]]


def gigabytes(count: int) -> str:
    """Bytes in decimal units: ``61 GB``, ``1.5 GB``, ``268 MB``."""
    if count < 10**9:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB" if count < 10**10 else f"{count / 1e9:.0f} GB"


def binary(count: int) -> str:
    """Bytes in units of 1024, as limits are given: ``256 MiB``, ``1.5 GiB``."""
    unit, size = ("GiB", 1 << 30) if count >= 1 << 30 else ("MiB", 1 << 20)
    return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"


def first_line(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".rstrip(": ")
