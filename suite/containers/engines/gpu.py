"""How an engine hands out NVIDIA GPUs: by the Container Device Interface (CDI), or by docker's ``--gpus``."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
KIND = "nvidia.com/gpu"
_LARGEST = 4 << 20  # bytes of a specification that is read
_INSTALL = "install the NVIDIA Container Toolkit, then "


def docker_gpus(info: Mapping[str, Any], root: Path = Path("/")) -> tuple[str | None, str]:
    """(``cdi`` | ``gpus`` | None, the reason as text) of a docker engine, from its ``info``.

    Docker injects CDI devices by itself from 28.2 on (25 to 28.1 with ``"features": {"cdi": true}``) and then
    lists its folders of specifications; from 28.3 on it also lists the devices found there. A listed device
    does not prove that injection works: only a started container does. ``root`` stands for / in tests.
    """
    folders = info.get("CDISpecDirs") or []
    listed = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or []]
    if folders and (any(name.startswith(f"{KIND}=") for name in listed) or names_nvidia_gpu(folders, root)):
        return "cdi", "the engine's CDI specifications name NVIDIA GPUs"
    if "nvidia" in (info.get("Runtimes") or {}) or shutil.which("nvidia-container-runtime-hook"):
        return "gpus", "NVIDIA's runtime is installed"
    fix = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    if not folders:
        fix = "sudo nvidia-ctk runtime configure --runtime=docker, and restart docker"
    return None, f"the engine finds no NVIDIA GPU: {_INSTALL}{fix}"


def podman_gpus(root: Path = Path("/")) -> tuple[str | None, str]:
    """(``cdi`` | None, the reason as text) of podman, which reads the CDI specifications itself."""
    if names_nvidia_gpu(CDI_FOLDERS, root):
        return "cdi", "CDI specifications name NVIDIA GPUs"
    fix = f"{_INSTALL}sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    return None, f"no CDI specification names an NVIDIA GPU: {fix}"


def names_nvidia_gpu(folders: Iterable[str], root: Path = Path("/")) -> bool:
    """Whether a CDI specification in ``folders`` names NVIDIA GPUs."""
    for folder in folders:
        for path in sorted((root / folder.lstrip("/")).glob("*")):
            try:
                small = path.suffix in (".yaml", ".yml", ".json") and path.stat().st_size <= _LARGEST
                if small and KIND in path.read_text(errors="replace"):
                    return True
            except OSError:
                continue
    return False
