"""Shared libraries of the environment that TensorFlow's libraries look for by name. Standard library only."""

from __future__ import annotations

import ctypes
from pathlib import Path

from suite.frameworks.tensorflow.traits import TRAITS


def load_libraries(packages: Path) -> list[Path]:
    """Load the libraries of ``TRAITS.libraries`` from the wheels in ``packages``; the files that were loaded.

    With NVRTC cuDNN compiles kernels. Some of its wheels, such as 9.3.0, look for it in a folder that NVRTC's
    wheel does not have; what is loaded already is found by its name. Without NVRTC, XLA finds no
    configuration for some convolutions. Libraries without a wheel are for the loader's path: `make doctor`.
    """
    found = [
        file
        for name in TRAITS.libraries["cuda"]
        for file in sorted(packages.glob(f"nvidia/*/lib/lib{name}.so.*"))
    ]
    for file in found:
        ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    return found
