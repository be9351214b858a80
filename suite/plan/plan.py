"""A plan: every ``auto`` resolved, with the reason; what the log's header and each worker are told."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite import __version__
from suite.plan.code import code_digest, git_state
from suite.plan.settings import PLACES, Settings
from suite.record.canonical import encode, sha256_hex
from suite.record.seeds import seed_of
from suite.runtime.native import NativeInputs, WorkerCommand, native_command
from suite.workloads.contract import MEASURED_STEPS, WARMUP_STEPS, Key

FORMAT = "suite-log/1"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What is read, or the stream of synthetic batches."""

    name: str
    kind: str  # mini | official | synthetic
    digest: str
    files: int
    bytes: int
    generator: str | None
    path: Path | None = None
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, wholly decided. ``python`` and ``dataset`` are filled in when the run is prepared."""

    settings: Settings
    run_id: str
    key: Key
    division: str
    rules_version: str
    runtime: str
    hyper: Mapping[str, str]
    device: str
    device_ids: tuple[str, ...]
    visible_devices: str | None  # CUDA_VISIBLE_DEVICES of the workers
    found_visible: str | None  # the same as the user had set it
    threads: int
    repeats: int
    soak_ns: int
    tail_ns: int
    max_epochs: int
    target: str
    why: tuple[str, ...]
    differences: tuple[tuple[str, str], ...] = ()
    python: Path | None = None
    dataset: Dataset | None = None
    attempt: int = 1

    @property
    def telemetry(self) -> bool:
        """Whether samples are taken."""
        return self.settings.telemetry

    @property
    def dataset_path(self) -> Path:
        """The folder of the dataset that is read."""
        if self.dataset is None or self.dataset.path is None:
            raise RuntimeError("this run reads no dataset")
        return self.dataset.path

    @property
    def dataset_files(self) -> tuple[Path, ...]:
        """The files that cache=cold puts out of the page cache."""
        return self.dataset.paths if self.dataset is not None else ()

    def seed(self, repeat: int) -> int:
        """The derived seed of ``repeat``."""
        return seed_of(self.settings.nonce, self.run_id, repeat)

    def command(self, scratch: Path) -> WorkerCommand:
        """How the worker of one repeat is started."""
        if self.python is None:
            raise RuntimeError("the plan has no interpreter yet")
        cache = scratch.parent / "cache"
        cache.mkdir(exist_ok=True)
        inputs = NativeInputs(
            self.python, scratch, cache, self.threads, self.settings.wait_policy, self.visible_devices
        )
        return native_command(inputs)

    def job(self, repeat: int, scratch: Path) -> dict[str, Any]:
        """The configuration line of one worker (see :class:`suite.workloads.contract.Job`)."""
        path = self.dataset.path if self.dataset is not None else None
        return {
            "key": asdict(self.key),
            "mode": self.settings.mode,
            "seed": self.seed(repeat),
            "repeat": repeat,
            "hyper": dict(self.hyper),
            "device": self.device,
            "threads": self.threads,
            "fast": self.settings.fast,
            "soak_ns": self.soak_ns,
            "tail_ns": self.tail_ns if repeat == 0 else 0,
            "data_dir": "" if path is None else str(path),
            "scratch_dir": str(scratch),
            "quality": {"max_epochs": self.max_epochs},
        }

    def resolved(self) -> dict[str, Any]:
        """The resolved tree as the log holds it: words, numbers and flags, no places."""
        asked = self.settings
        return {
            **asdict(self.key),
            "mode": asked.mode,
            "division": self.division,
            "purpose": asked.purpose,
            "loader": asked.loader,
            "launcher": asked.launcher,
            "runtime": self.runtime,
            "telemetry": asked.telemetry,
            "device": self.device.partition(":")[0],
            "threads": self.threads,
            "wait_policy": asked.wait_policy,
            "fast": asked.fast,
            "own_python": asked.python is not None,
            "soak_ns": self.soak_ns,
            "tail_ns": self.tail_ns,
            "max_epochs": self.max_epochs,
        }

    def header(self, rules: Any) -> dict[str, Any]:
        """The data of the log's first event."""
        dataset = self.dataset
        if dataset is None:
            raise RuntimeError("the plan has no dataset yet")
        settings = self.resolved()
        git, reasons = git_state()
        if self.settings.nonce is None:
            reasons["nonce"] = "no registry nonce was given"
        if dataset.generator is None:
            reasons["dataset.generator"] = "an official dataset has no generator"
        reasons["image"] = f"runtime {self.runtime} uses no image"
        initial = rules.initial_parameters(self.key)
        if initial is None:
            reasons["initial_parameters"] = "the rules hold no digest for this size of the model"
        return {
            "format": FORMAT,
            "run_id": self.run_id,
            "suite_version": __version__,
            "rules": rules.stamp(self.key.workload, None if dataset.kind == "synthetic" else dataset.name),
            "code_digest": code_digest(),
            "git": git,
            "key": asdict(self.key),
            "mode": self.settings.mode,
            "division": self.division,
            "purpose": self.settings.purpose,
            "attempt": self.attempt,
            "nonce": self.settings.nonce,
            "loader": self.settings.loader,
            "runtime": self.runtime,
            "launcher": self.settings.launcher,
            "repeats": self.repeats,
            "warmup_steps": WARMUP_STEPS,
            "measured_steps": MEASURED_STEPS,
            "settings": settings,
            "settings_digest": sha256_hex(encode(settings)),
            "overrides": [_without_place(text) for text in self.settings.overrides],
            "hyper": dict(self.hyper),
            "dataset": {
                "name": dataset.name,
                "kind": dataset.kind,
                "digest": dataset.digest,
                "files": dataset.files,
                "bytes": dataset.bytes,
                "generator": dataset.generator,
            },
            "image": None,
            "differences": [{"rule": rule, "reason": reason} for rule, reason in self.differences],
            "initial_parameters": initial,
            "reasons": reasons,
        }

    def with_(self, **changes: Any) -> Plan:
        """The plan with some fields replaced."""
        return replace(self, **changes)


def new_run_id(key: Key, mode: str) -> str:
    """Such as ``20261120T1817Z-gnmt-pytorch-train-fp32-mini-0a1b2c3d``: time, what, and 32 random bits."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%MZ")
    phase = "quality" if mode == "quality" else key.phase
    words = (now, key.workload, key.framework, phase, key.precision, key.scale, secrets.token_hex(4))
    return "-".join(words)


def _without_place(override: str) -> str:
    """An override as given, but for a path: the log names no machine's folders."""
    name, equals, value = override.partition("=")
    word = name.lstrip("+")
    place = word in (*PLACES, "framework.python") or ("/" in value and word != "experiment")
    return f"{name}=<path>" if equals and place else override
