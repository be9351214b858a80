"""What the doctor is asked to detect_machine at, and what one detect_machine found."""

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


class Check:
    """One finding: ``name``, ``state`` (ok, warn, fail, skip), what was ``found``, and the ``remedy``.

    Names of processes and messages of engines are foreign text: control characters are escaped.
    """

    __slots__ = ("found", "name", "remedy", "state")

    def __init__(self, name: str, state: str, found: str, remedy: str = "") -> None:
        if state in (WARN, FAIL) and not remedy:
            raise ValueError(f"{name}: expected a remedy with {state}, found none")
        self.name, self.state = name, state
        self.found, self.remedy = safe(found, _LONGEST), safe(remedy, _LONGEST)


@dataclass
class Subject:
    """A machine, and what of the suite is meant to run on it.

    ``frameworks``: those asked for, empty for all. ``start``: whether a container may be started. ``root``
    stands for /, ``free_bytes`` and ``look`` for the machine's own account in tests. ``engines`` fills as
    they answer. ``undo``: what must still be done should a check be cut off.
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
        """Cores, GPUs and driver, as a plan sees them."""
        return self.look()

    @cached_property
    def facts(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The machine's facts as the log holds them, and why some are null."""
        return machine_facts((), self.root)

    @property
    def asked(self) -> bool:
        """Whether somebody wants a container here: by name, by framework, or by having a GPU."""
        named = self.runtime not in ("auto", "native") or bool(self.frameworks)
        return self.runtime != "native" and (named or bool(self.machine.gpus))

    @property
    def engine(self) -> Engine | None:
        """The engine that a run takes: the first that answers, with a GPU the first that hands it out."""
        able = [one for one in self.engines.values() if one.gpu_by is not None or not self.machine.gpus]
        return next(iter([*able, *self.engines.values()]), None)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(workload, framework) of those that are asked for."""
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


Look = Callable[[Subject], Iterable[Check]]


def gigabytes(count: int) -> str:
    """Bytes for people: ``61 GB``, ``1.5 GB``, ``268 MB``."""
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
