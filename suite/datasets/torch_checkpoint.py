"""The tensors of a PyTorch checkpoint, read in PyTorch's environment: the host imports no framework."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.datasets.errors import DatasetCorrupt, DatasetError, storage_errors
from suite.environments import environments

Arrays = dict[str, NDArray[Any]]

_SCRIPT = environments.ROOT / "suite" / "frameworks" / "pytorch" / "read_checkpoint.py"


def read(path: Path) -> Arrays:
    """The tensors of the checkpoint at ``path`` by name.

    Raises DatasetCorrupt where it contains anything else, DatasetError where PyTorch's environment is missing
    and cannot be made.
    """
    python = _python()
    with storage_errors(path):
        path.open("rb").close()
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "arrays.npz"
        done = subprocess.run(
            [str(python), "-I", str(_SCRIPT), str(path.absolute()), str(arrays)],
            env={"PATH": os.environ.get("PATH", os.defpath), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            found = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            fix = "Fetch the publisher's file again."
            raise DatasetCorrupt(str(path), "tensors by name, saved by PyTorch", found, fix)
        with np.load(arrays) as stored:
            return {name: stored[name] for name in stored.files}


def _python() -> Path:
    """PyTorch's interpreter: of an existing environment, else of the CPU build, which is made now."""
    for accelerator in environments.accelerators("pytorch"):
        found = environments.plan("pytorch", accelerator)
        if found.ready:
            return found.python
    try:
        return environments.ensure("pytorch", "cpu", progress=lambda line: print(line, flush=True))
    except (environments.EnvironmentMissing, environments.LargeDownload) as error:
        raise DatasetError(
            f"reading a PyTorch checkpoint needs PyTorch's environment, which could not be made: {error}. "
            "`make environments FRAMEWORK=pytorch` makes it where there is a network."
        ) from error
