"""A prepared run: a plan, what its workers read and run in, and the header that the rules checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from suite.containers.engines.native import WorkerCommand
from suite.containers.engines.workers import Workers
from suite.contract import BENCHMARK, CONVERSION, STEPS, ConversionKey, Key
from suite.contract.seeds import seed_of
from suite.plan.custom import CustomCode
from suite.plan.plan import Plan
from suite.workloads import specification


@dataclass(frozen=True, slots=True)
class Dataset:
    """What is read, or the stream of synthetic batches."""

    name: str
    kind: str  # mini | official | custom | synthetic
    digest: str
    files: int
    bytes: int
    generator: str | None
    path: Path | None = None  # None where nothing is read
    paths: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of a dataset that is read."""
        if self.path is None:
            raise ValueError(f"{self.name} is read from no folder")
        return self.path


@dataclass(frozen=True, slots=True)
class Resources:
    """What the workers of a plan read and run in, there on this machine."""

    dataset: Dataset
    workers: Workers
    image: Mapping[str, Any] | None  # what the header says of the container image; None: runtime native
    custom: CustomCode

    def command(self, repeat: int, scratch: Path) -> WorkerCommand:
        """How the worker of one repeat is started."""
        return self.workers.command(repeat, scratch, self.dataset.path)

    def job(self, plan: Plan, repeat: int, seed: int, scratch: Path) -> dict[str, Any]:
        """The configuration line of one worker (see :mod:`suite.worker.job`)."""
        found = self.workers.paths(scratch, self.dataset.path)
        paths = {"data_dir": found.data, "scratch_dir": found.scratch}
        if isinstance(plan.key, ConversionKey):
            return {
                "kind": CONVERSION,
                "key": asdict(plan.key),
                "threads": plan.threads,
                "soak_ns": plan.soak_ns,
                **paths,
            }
        return {
            "kind": BENCHMARK,
            "key": asdict(plan.key),
            "mode": plan.settings.mode,
            "seed": seed,
            "repeat": repeat,
            "hyper": dict(plan.hyper),
            "device": plan.device,
            "threads": plan.threads,
            "fast": plan.settings.fast,
            "soak_ns": plan.soak_ns,
            "tail_ns": plan.tail_ns if repeat == 0 else 0,
            **paths,
            "pair_file": found.pair,
            "quality": {"max_epochs": plan.max_epochs},
            "loader": plan.settings.loader,
            "world_size": plan.key.devices,
        }


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """One run that can begin. ``header`` is what the rules checked, and what the log writes first."""

    plan: Plan
    resources: Resources
    attempt: int
    changes: bytes  # changes.patch; empty: there is none
    header: Mapping[str, Any]
    replayed: tuple[int, ...] = ()  # of a replay: which repeats of the run are run again, in this order

    def seed(self, repeat: int) -> int:
        """The derived seed of ``repeat``; in a replay, that of the repeat that is run again in its place."""
        number = self.replayed[repeat] if self.replayed else repeat
        return seed_of(self.plan.settings.nonce, self.plan.run_id, number)

    def command(self, repeat: int, scratch: Path) -> WorkerCommand:
        """How the worker of one repeat is started."""
        return self.resources.command(repeat, scratch)

    def job(self, repeat: int, scratch: Path) -> dict[str, Any]:
        """The configuration line of one worker."""
        return self.resources.job(self.plan, repeat, self.seed(repeat), scratch)

    @property
    def ranks(self) -> int:
        """How many ranks each repeat starts, over all nodes."""
        return 1 if isinstance(self.plan.key, ConversionKey) else self.plan.key.devices

    def units(self, repeat: int) -> tuple[int, ...]:
        """The units of work of each of the 110 steps of ``repeat``."""
        key = self.plan.key
        if isinstance(key, ConversionKey):
            return (key.batch,) * STEPS  # the first 110 shards are full
        return specification(key.workload).units(key, self.seed(repeat))


def with_batch(plan: Plan, batch: int, **changes: Any) -> Plan:
    """The plan of a benchmark with another batch."""
    if not isinstance(plan.key, Key):
        raise TypeError("a conversion has no batch to look for")
    return replace(plan, key=replace(plan.key, batch=batch), **changes)
