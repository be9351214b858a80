"""A prepared run: a plan with its dataset, environment and the header that the rules checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from suite.containers.engines.native import WorkerCommand
from suite.containers.engines.workers import Workers
from suite.contract import CONVERSION, STEPS, ConversionKey, Key, units_of_window
from suite.contract.seeds import seed_of
from suite.plan.custom import CustomCode
from suite.plan.plan import Plan
from suite.workloads import specification


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset on disk, or the stream of synthetic batches."""

    name: str
    kind: str  # mini | official | custom | synthetic
    digest: str
    files: int
    bytes: int
    generator: str | None
    path: Path | None = None  # None for synthetic batches
    paths: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the dataset; ValueError for synthetic batches."""
        if self.path is None:
            raise ValueError(f"{self.name} has no folder: its batches are synthetic")
        return self.path


@dataclass(frozen=True, slots=True)
class Resources:
    """The dataset and the environment of the workers, both present on this machine."""

    dataset: Dataset
    workers: Workers
    image: Mapping[str, Any] | None  # the header's `image`; None: runtime native
    custom: CustomCode

    def command(self, repeat: int, scratch: Path) -> WorkerCommand:
        """The command that starts the worker of ``repeat``."""
        return self.workers.command(repeat, scratch, self.dataset.path)

    def job(self, plan: Plan, repeat: int, seed: int, scratch: Path) -> dict[str, Any]:
        """The configuration of one worker (see :mod:`suite.worker.job`)."""
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
            "kind": plan.kind,
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
            "collective": plan.collective,
            "bucket_mib": plan.settings.bucket_mib or 0,
            "measured_steps": plan.measured_steps,
        }


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to start. ``header`` is the data of the log's first event, checked by the rules."""

    plan: Plan
    resources: Resources
    attempt: int
    files: Mapping[str, bytes]  # written beside the log: changes.patch and baseline.json, where there is one
    header: Mapping[str, Any]
    replayed: tuple[int, ...] = ()  # in a replay: the numbers of the repeats that are run again, in order

    def seed(self, repeat: int) -> int:
        """The derived seed of ``repeat``; in a replay, the seed of the repeat that is run again."""
        number = self.replayed[repeat] if self.replayed else repeat
        return seed_of(self.plan.settings.nonce, self.plan.run_id, number)

    def command(self, repeat: int, scratch: Path) -> WorkerCommand:
        """The command that starts the worker of ``repeat``."""
        return self.resources.command(repeat, scratch)

    def job(self, repeat: int, scratch: Path) -> dict[str, Any]:
        """The configuration of the worker of ``repeat``."""
        return self.resources.job(self.plan, repeat, self.seed(repeat), scratch)

    @property
    def ranks(self) -> int:
        """The world size of each repeat."""
        return 1 if isinstance(self.plan.key, ConversionKey) else self.plan.key.devices

    @property
    def nodes(self) -> int:
        """The number of nodes of each repeat."""
        return 1 if isinstance(self.plan.key, ConversionKey) else self.plan.key.nodes

    def units(self, repeat: int) -> tuple[int, ...]:
        """The units of work of each step of ``repeat``."""
        key = self.plan.key
        if isinstance(key, ConversionKey):
            return (key.batch,) * STEPS  # the first 110 shards are full
        usual = specification(key.workload).units(key.of_batches, self.seed(repeat))
        return units_of_window(usual, self.plan.measured_steps)


def with_batch(plan: Plan, batch: int, **changes: Any) -> Plan:
    """The plan of a benchmark with another batch and other ``changes``."""
    if not isinstance(plan.key, Key):
        raise TypeError("a conversion has no batch to search for")
    return replace(plan, key=replace(plan.key, batch=batch), **changes)
