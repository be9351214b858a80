"""A plan: everything that is decided about a run before anything is prepared."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.containers.engines.container import Limits
from suite.contract import BENCHMARK, CONVERSION, ConversionKey, Key, run_id_parts
from suite.contract.traits import traits_of
from suite.plan.machine import Gpu
from suite.plan.settings import Settings

BatchProbe = tuple[int, int, str]  # a probe of batch=max: batch, steps, how it ended
CONVERTING = ".converting"  # under the data root: unfinished conversions


@dataclass(frozen=True, slots=True)
class Plan:
    """A decided run: every ``auto`` is resolved, and ``why`` lists the reasons."""

    settings: Settings
    run_id: str
    key: Key | ConversionKey  # a conversion has a ConversionKey
    division: str
    rules_version: str
    runtime: str
    engine: Any  # of suite.containers.engines.choice; None where the runtime is native
    limits: Limits
    hyper: Mapping[str, str]
    device: str
    device_ids: tuple[str, ...]  # of this node
    found_visible: str | None  # CUDA_VISIBLE_DEVICES as set by the user
    threads: int
    repeats: int
    measured_steps: int  # of the window
    soak_ns: int
    tail_ns: int
    max_epochs: int
    target: str
    better: str  # higher | lower: the direction of the target's metric
    why: tuple[str, ...]
    affinity: str | None = None  # processors such as 0-1 of a native run, whose limits nothing enforces
    collective: str = ""  # what moves the gradients; empty: the ranks exchange none
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    search: tuple[BatchProbe, ...] = ()  # the probes of batch=max, in their order
    pilot_ns: int | None = None  # of min_seconds: the time that 100 steps took before the run

    @property
    def kind(self) -> str:
        """The kind of the job: benchmark, load or conversion."""
        return self.settings.kind

    @property
    def visible_devices(self) -> str:
        """CUDA_VISIBLE_DEVICES of the workers."""
        return ",".join(self.device_ids)

    @property
    def accelerator(self) -> str:
        """The accelerator of the framework build: cpu or cuda."""
        return "cuda" if self.device.startswith("cuda") else "cpu"

    @property
    def variables(self) -> dict[str, str]:
        """Of the workers' environment: those of the framework, and framework.variables."""
        own = traits_of(self.key.framework).variables.get(self.accelerator, {})
        return {**own, **self.settings.variables}

    @property
    def telemetry(self) -> bool:
        """Whether samples are taken."""
        return self.settings.telemetry

    @property
    def fingerprint(self) -> bool:
        """Whether a fingerprint is computed after repeat 0."""
        return self.settings.fingerprint and self.settings.mode == "throughput" and self.kind == BENCHMARK

    @property
    def compiled(self) -> Path | None:
        """The folder of compiled code that the run starts from and adds to; None: it compiles afresh."""
        if not self.settings.reuse_compiled:
            return None
        return self.settings.cache_dir / "compiled" / self.key.framework

    @property
    def scratch_root(self) -> Path:
        """Where workers may write: in a conversion on the disk of its target, else in the cache."""
        if self.kind == CONVERSION:
            return self.settings.data_root / CONVERTING
        return self.settings.cache_dir


def new_run_id(key: Key | ConversionKey, mode: str) -> str:
    """A new run id of time, key and 32 random bits: 20261120T1817Z-gnmt-pytorch-train-fp32-mini-0a1b2c3d."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%MZ")
    return "-".join((now, *run_id_parts(key, mode), secrets.token_hex(4)))
