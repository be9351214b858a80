"""Which container engine answers on this machine, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from suite.containers.engines.attestation import Engine, EngineProblem
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.engines.file_engine import FileEngine
from suite.containers.engines.podman_engine import PodmanEngine

__all__ = ["ORDER", "Engine", "EngineProblem", "FoundEngine", "find"]

ORDER = ("docker", "podman", "apptainer", "enroot")
_START: dict[str, Callable[[], Engine]] = {
    "docker": DockerEngine,
    "podman": PodmanEngine,
    "apptainer": lambda: FileEngine("apptainer"),
    "enroot": lambda: FileEngine("enroot"),
}


@dataclass(frozen=True, slots=True)
class FoundEngine:
    """The engine, or None; ``tried`` has a line ``<name>: <reason>`` for each engine that was not chosen."""

    engine: Engine | None
    tried: tuple[str, ...]


def find(wanted: str, need_gpu: bool) -> FoundEngine:
    """The engine ``wanted``, or with ``auto`` the first of docker, podman, apptainer, enroot that answers.

    ``need_gpu`` skips engines that cannot hand out a GPU. Raises ValueError for an unknown name.
    """
    if wanted != "auto" and wanted not in ORDER:
        raise ValueError(f"runtime: expected auto or one of {', '.join(ORDER)}, found {wanted}")
    tried: list[str] = []
    for name in ORDER if wanted == "auto" else (wanted,):
        try:
            engine = _START[name]()
        except EngineProblem as problem:
            tried.append(f"{name}: {problem}")
            continue
        if need_gpu and engine.gpu_by is None:
            tried.append(f"{name}: {getattr(engine, 'gpu_reason', 'it hands out no GPU')}")
            continue
        return FoundEngine(engine, tuple(tried))
    return FoundEngine(None, tuple(tried))
