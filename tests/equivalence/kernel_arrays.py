"""Reads what a module wrote of kernels and of the plain operators, and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import run


def against_plain(
    module: str, way: str, folder: Path, *arguments: str
) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    """Run ``module FILE arguments`` in PyTorch's interpreter, and read the arrays that it wrote to FILE.

    Returns them by name, and for each ``plain/NAME`` the relative difference of ``<way>/NAME``, by NAME.
    """
    file = folder / "kernels.npz"
    done = run("pytorch", module, str(file), *arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as arrays:
        found = dict(arrays)
    names = [name.removeprefix("plain/") for name in found if name.startswith("plain/")]
    apart = {name: in_norm(found[f"plain/{name}"], found[f"{way}/{name}"]) for name in names}
    print(f"largest {max(apart.items(), key=lambda item: item[1])}")
    return found, apart
