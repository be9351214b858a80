"""A plan: what options, rules and machine decide of a run. Nothing is prepared yet."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.containers.engines.container import Limits
from suite.contract import CONVERSION, ConversionKey, Key, run_id_parts
from suite.plan.machine import Gpu
from suite.plan.settings import Settings

Tried = tuple[int, int, str]  # a probe of batch=max: batch, steps, how it ended
CONVERTING = ".converting"  # under the data root: conversions that are not finished


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, wholly decided: every ``auto`` is resolved, ``why`` has the reasons."""

    settings: Settings
    run_id: str
    key: Key | ConversionKey  # its type is the kind of the job: a benchmark or a conversion
    division: str
    rules_version: str
    runtime: str
    engine: Any  # of suite.containers.engines.choice; None where the runtime is native
    limits: Limits
    hyper: Mapping[str, str]
    device: str
    device_ids: tuple[str, ...]
    found_visible: str | None  # CUDA_VISIBLE_DEVICES as the user had set it
    threads: int
    repeats: int
    soak_ns: int
    tail_ns: int
    max_epochs: int
    target: str
    better: str  # higher | lower: the direction of the target's metric
    why: tuple[str, ...]
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    search: tuple[Tried, ...] = ()  # the probes that decided batch=max, in their order

    @property
    def kind(self) -> str:
        """The kind of the job: benchmark or conversion."""
        return self.settings.kind

    @property
    def visible_devices(self) -> str:
        """CUDA_VISIBLE_DEVICES of the workers."""
        return ",".join(self.device_ids)

    @property
    def accelerator(self) -> str:
        """Whose builds of the framework are needed: cpu or cuda."""
        return "cuda" if self.device.startswith("cuda") else "cpu"

    @property
    def telemetry(self) -> bool:
        """Whether samples are taken."""
        return self.settings.telemetry

    @property
    def fingerprint(self) -> bool:
        """Whether repeat 0 is followed by steps that others can compute again."""
        return self.settings.fingerprint and self.settings.mode == "throughput" and self.kind != CONVERSION

    @property
    def scratch_root(self) -> Path:
        """Where workers may write: shards on the disk where the conversion will be, all else in the cache."""
        if self.kind == CONVERSION:
            return self.settings.data_root / CONVERTING
        return self.settings.cache_dir


def new_run_id(key: Key | ConversionKey, mode: str) -> str:
    """Such as ``20261120T1817Z-gnmt-pytorch-train-fp32-mini-0a1b2c3d``: time, what, and 32 random bits."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%MZ")
    return "-".join((now, *run_id_parts(key, mode), secrets.token_hex(4)))
