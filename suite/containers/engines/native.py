"""The native runtime: a plain process on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
PACKAGES = "SUITE_PACKAGES"  # the variable that suite/worker/__main__.py reads


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """The command that starts one worker: no shell, no inherited environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    processors: frozenset[int] | None = None  # that it may run on (sched_setaffinity); None: as its parent


@dataclass(frozen=True, slots=True)
class NativeInputs:
    """Everything a native worker's command depends on."""

    python: Path
    scratch: Path
    cache: Path  # compilation caches of this run, kept between its repeats
    threads: int
    wait_policy: str  # passive | active
    visible_devices: str | None = None
    processors: frozenset[int] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)  # further ones: of the plan
    packages: Path | None = None  # a folder of packages beside those of the interpreter, which come first


def worker_environment(scratch: str, cache: str, code: str, threads: int, wait_policy: str) -> dict[str, str]:
    """The variables of every worker, equal under every runtime, because they could change a figure.

    ``scratch``, ``cache`` and ``code`` (the search path of modules) are paths as the worker sees them.
    """
    return {
        "LANG": "C.UTF-8",
        "HOME": scratch,
        "TMPDIR": scratch,
        "PYTHONPATH": code,
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": wait_policy.upper(),
        "OMP_PROC_BIND": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_MODULE_LOADING": "LAZY",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={cache}/tensorflow",
        "XDG_CACHE_HOME": cache,
        # Machine code that the driver compiles from PTX, such as cuDNN's. Otherwise it is kept under HOME,
        # which is new for each repeat.
        "CUDA_CACHE_PATH": f"{cache}/cuda",
    }


def native_command(inputs: NativeInputs) -> WorkerCommand:
    """The command of one worker process."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **worker_environment(
            str(inputs.scratch), str(inputs.cache), str(PROJECT), inputs.threads, inputs.wait_policy
        ),
        **inputs.variables,
    }
    if inputs.packages is not None:
        environment[PACKAGES] = str(inputs.packages)
    if inputs.visible_devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = inputs.visible_devices
    argv = (str(inputs.python), "-s", "-m", "suite.worker")
    return WorkerCommand(argv, environment, inputs.scratch, inputs.processors)
