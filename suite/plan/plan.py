"""A plan: every ``auto`` resolved, with the reason; what the log's header and each worker are told."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite import __version__
from suite.images.bundle import Bundle
from suite.plan.code import code_digest, git_state
from suite.plan.machine import Gpu
from suite.plan.own import NO_OWN_CODE, OwnCode
from suite.plan.settings import PLACES, Settings
from suite.record.canonical import encode, sha256_hex
from suite.record.seeds import seed_of
from suite.runtime.container import Limits
from suite.runtime.native import WorkerCommand
from suite.runtime.workers import Workers
from suite.workloads.contract import MEASURED_STEPS, WARMUP_STEPS, Key
from suite.workloads.forms import form_of

FORMAT = "suite-log/1"
Tried = tuple[int, int, str]  # a probe of batch=max: batch, steps, how it ended
CONVERTING = ".converting"  # under the data root: conversions that are not finished
_NO_LIMIT = "no limit was asked for"
_NOT_SET = {  # settings that may be null, and why
    **dict.fromkeys(("cpus", "cpuset", "memory_bytes"), _NO_LIMIT),
    "shm_bytes": "this runtime does not set the size of shared memory",
    "own_image": "no own image was given",
    "own_pair": "no own pair was given",
    "own_python": "no own interpreter was given",
    "changes_digest": "nothing was changed, or nothing that has to be shown",
}
_UNKNOWN = {  # parts of the header's image that may be null, and why
    "lock": "an own image is in no lock",
    "manifest_digest": "no digest of this platform's manifest is known",
    "index_digest": "no index is known: the image is for one platform, or came without a registry",
    "config_digest": "this engine's image store does not tell it",
    "requirements_digest": "nothing is installed on top of the image",
}


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
    """One run, wholly decided. ``workers``, ``image`` and ``dataset`` are filled in when it is prepared."""

    settings: Settings
    run_id: str
    key: Key
    division: str
    rules_version: str
    runtime: str
    engine: Any  # of suite.runtime.engines; None where the runtime is native
    limits: Limits
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
    better: str  # higher | lower: the direction of the target's metric
    why: tuple[str, ...]
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    differences: tuple[tuple[str, str], ...] = ()
    workers: Workers | None = None
    image: Mapping[str, Any] | None = None  # the header's
    own: OwnCode = NO_OWN_CODE
    changes: bytes = b""  # changes.patch
    bundle: Bundle | None = None  # verified
    dataset: Dataset | None = None
    attempt: int = 1
    search: tuple[Tried, ...] = ()  # of batch=max, in the order of the probes
    again: tuple[int, ...] = ()  # of a replay: which repeats of the run are run again, in this order

    @property
    def telemetry(self) -> bool:
        """Whether samples are taken."""
        return self.settings.telemetry

    @property
    def fingerprint(self) -> bool:
        """Whether repeat 0 is followed by steps that others can compute again."""
        return (
            self.settings.fingerprint
            and self.settings.mode == "throughput"
            and self.key.phase in ("train", "infer")
        )

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
        """The derived seed of ``repeat``; in a replay, that of the repeat that is run again in its place."""
        return seed_of(self.settings.nonce, self.run_id, self.again[repeat] if self.again else repeat)

    @property
    def started_workers(self) -> Workers:
        """How workers are started, seen and ended; there from the preparation on."""
        if self.workers is None:
            raise RuntimeError("the plan has no workers yet")
        return self.workers

    @property
    def scratch_place(self) -> Path:
        """Where workers may write: shards on the disk where the conversion will be, all else in the cache."""
        if self.key.phase == "preprocess":
            return self.settings.data_root / CONVERTING
        return self.settings.cache_dir

    @property
    def _data(self) -> Path | None:
        return self.dataset.path if self.dataset is not None else None

    def command(self, repeat: int, scratch: Path) -> WorkerCommand:
        """How the worker of one repeat is started."""
        return self.started_workers.command(repeat, scratch, self._data)

    def job(self, repeat: int, scratch: Path) -> dict[str, Any]:
        """The configuration line of one worker (see :class:`suite.workloads.contract.Job`)."""
        places = self.started_workers.places(scratch, self._data)
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
            "data_dir": places.data,
            "scratch_dir": places.scratch,
            "pair_file": places.pair,
            "quality": {"max_epochs": self.max_epochs},
            "loader": self.settings.loader,
        }

    def resolved(self) -> dict[str, Any]:
        """The resolved tree as the log holds it: words, numbers and flags, no places."""
        asked = self.settings
        form = form_of(self.key.framework) if self.key.phase == "preprocess" else asked.form
        return {
            **({} if form == "files" else {"form": form}),
            **asdict(self.key),
            "mode": asked.mode,
            "division": self.division,
            "purpose": asked.purpose,
            "loader": asked.loader,
            "launcher": asked.launcher,
            "runtime": self.runtime,
            "telemetry": asked.telemetry,
            "fingerprint": self.fingerprint,
            "device": self.device.partition(":")[0],
            "threads": self.threads,
            "wait_policy": asked.wait_policy,
            "fast": asked.fast,
            "cpus": self.limits.cpus,
            "cpuset": self.limits.cpuset,
            "memory_bytes": self.limits.memory_bytes,
            "shm_bytes": self.limits.shm_bytes,
            "own_image": asked.image,
            "own_pair": self.own.pair_digest,
            "own_python": self.own.python_digest,
            "changes_digest": sha256_hex(self.changes) if self.changes else None,
            "soak_ns": self.soak_ns,
            "tail_ns": self.tail_ns,
            "max_epochs": self.max_epochs,
            **({"batch_search": [list(probe) for probe in self.search]} if self.search else {}),
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
        if self.image is None:
            reasons["image"] = f"runtime {self.runtime} uses no image"
        reasons |= _why_null(settings, self.image)
        converts = self.key.phase == "preprocess"
        initial = None if converts else rules.initial_parameters(self.key, self.settings.mode)
        if converts:
            reasons["initial_parameters"] = "a conversion has no model"
        elif initial is None:
            reasons["initial_parameters"] = "the rules hold no digest of what this run starts from"
        return {
            "format": FORMAT,
            "run_id": self.run_id,
            "suite_version": __version__,
            "rules": self._stamp(rules, dataset),
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
            "image": None if self.image is None else dict(self.image),
            "differences": [{"rule": rule, "reason": reason} for rule, reason in self.differences],
            "initial_parameters": initial,
            "reasons": reasons,
        }

    def _stamp(self, rules: Any, dataset: Dataset) -> dict[str, Any]:
        """Version and digests of the rule files that this run uses, those of its image among them."""
        name = None if dataset.kind == "synthetic" else dataset.name
        stamp: dict[str, Any] = rules.stamp(
            self.key.workload, name, framework=self.key.framework, image=self.image
        )
        return stamp

    def with_(self, **changes: Any) -> Plan:
        """The plan with some fields replaced."""
        return replace(self, **changes)


def new_run_id(key: Key, mode: str) -> str:
    """Such as ``20261120T1817Z-gnmt-pytorch-train-fp32-mini-0a1b2c3d``: time, what, and 32 random bits."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%MZ")
    phase = "quality" if mode == "quality" else key.phase
    words = (now, key.workload, key.framework, phase, key.precision, key.scale, secrets.token_hex(4))
    return "-".join(words)


def _why_null(settings: Mapping[str, Any], image: Mapping[str, Any] | None) -> dict[str, str]:
    """Why settings and parts of the image are null."""
    reasons = {f"settings.{name}": why for name, why in _NOT_SET.items() if settings[name] is None}
    unknown = {name for name, value in (image or {}).items() if value is None}
    return reasons | {f"image.{name}": _UNKNOWN.get(name, "not known") for name in unknown}


def _without_place(override: str) -> str:
    """An override as given, but for a path: the log names no machine's folders."""
    name, equals, value = override.partition("=")
    word = name.lstrip("+")
    if word == "image":  # a repository and its digest are no place
        return override
    place = word in (*PLACES, "bundle", "framework.python") or ("/" in value and word != "experiment")
    return f"{name}=<path>" if equals and place else override
