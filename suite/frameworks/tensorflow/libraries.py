"""Shared libraries of the environment that TensorFlow's libraries look for by name. Standard library only."""

from __future__ import annotations

import ctypes
from pathlib import Path

from suite.frameworks.tensorflow.traits import TRAITS


def load_libraries(packages: Path) -> list[Path]:
    """Load the libraries of ``TRAITS.libraries`` from the wheels in ``packages``; the files that were loaded.

    With NVRTC cuDNN compiles kernels. Its wheel looks for it in a folder of another name than NVRTC's wheel
    has; a library that is loaded already is found by its name. Without NVRTC, XLA finds no configuration for
    some convolutions. Where no wheel has a library the loader's path must have it: see ``make doctor``.
    """
    found = [
        file
        for name in TRAITS.libraries["cuda"]
        for file in sorted(packages.glob(f"nvidia/*/lib/lib{name}.so.*"))
    ]
    for file in found:
        ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    return found
