"""The native runtime: a plain process on this machine. A runtime turns frozen inputs into an argv list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """What starts one worker: no shell, no inherited environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path


@dataclass(frozen=True, slots=True)
class NativeInputs:
    """Everything a native worker's command depends on."""

    python: Path
    scratch: Path
    cache: Path  # compilation caches of this run, kept between its repeats
    threads: int
    wait_policy: str  # passive | active
    visible_devices: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


def native_command(inputs: NativeInputs) -> WorkerCommand:
    """The command of one worker process."""
    threads = str(inputs.threads)
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(inputs.scratch),
        "TMPDIR": str(inputs.scratch),
        "PYTHONPATH": str(PROJECT),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": inputs.wait_policy.upper(),
        "OMP_PROC_BIND": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_MODULE_LOADING": "LAZY",
        "TORCHINDUCTOR_CACHE_DIR": str(inputs.cache / "inductor"),
        "TRITON_CACHE_DIR": str(inputs.cache / "triton"),
        "XDG_CACHE_HOME": str(inputs.cache),
        **inputs.extra,
    }
    if inputs.visible_devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = inputs.visible_devices
    argv = (str(inputs.python), "-s", "-m", "suite.worker")
    return WorkerCommand(argv, environment, inputs.scratch)
