"""Reads what a module wrote of kernels and of the plain operators, and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run


def written_by(module: str, folder: Path, *arguments: str) -> dict[str, NDArray[Any]]:
    """The arrays, by name, that ``module FILE arguments`` writes to FILE in PyTorch's interpreter."""
    file = folder / "kernels.npz"
    done = run("pytorch", module, str(file), *arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        return dict(arrays)


def against_plain(
    module: str, way: str, folder: Path, *arguments: str
) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    """The arrays of :func:`written_by`, and how far each ``<way>/NAME`` is from ``plain/NAME``, by NAME."""
    found = written_by(module, folder, *arguments)
    names = [name.removeprefix("plain/") for name in found if name.startswith("plain/")]
    apart = {name: in_norm(found[f"plain/{name}"], found[f"{way}/{name}"]) for name in names}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    return found, apart
