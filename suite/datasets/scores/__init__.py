"""Score raw predictions on the host: container images lack the metric libraries, and no worker scores itself.

There is one module for each metric, with its name: ``ARRAYS`` declares the arrays of a worker's predictions,
``score`` computes the metric from them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.datasets.errors import ScoringError

LARGEST = 1 << 30  # bytes of all arrays together


@dataclass(frozen=True, slots=True)
class Score:
    """The quality metric of the workload, and further metrics that its publications report."""

    metric: str
    value: float
    others: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Predictions:
    """A worker's predictions for the dataset in ``folder``: the arrays that the metric declares."""

    workload: str
    scale: str
    folder: Path
    arrays: Mapping[str, NDArray[Any]]


def score(workload: str, folder: Path, predictions: Path, scale: str) -> Score:
    """The score of a worker's ``.npz`` file; ScoringError for a file with other arrays."""
    if workload not in workloads.names():
        raise ScoringError(f"no scoring for workload {workload!r}. Known are {', '.join(workloads.names())}.")
    metric = import_module(f"{__name__}.{workloads.specification(workload).METRIC}")
    found: Score = metric.score(Predictions(workload, scale, folder, load(predictions, metric.ARRAYS)))
    return found


def load(path: Path, wanted: Mapping[str, tuple[str, int]]) -> dict[str, NDArray[Any]]:
    """The arrays ``wanted`` (name -> kind of dtype, number of dimensions); never unpickled, size capped."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST:
            raise ScoringError(f"{path.name}: expected at most {LARGEST} bytes, found {size}.")
        with np.load(path, allow_pickle=False) as file:
            if set(file.files) != set(wanted):
                names = sorted(file.files)
                raise ScoringError(f"{path.name}: expected arrays {sorted(wanted)}, found {names}.")
            arrays = {name: np.asarray(file[name]) for name in wanted}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ScoringError(f"{path.name}: expected a plain .npz file, found {error}.") from error
    for name, (kind, dimensions) in wanted.items():
        found = arrays[name]
        if found.dtype.kind != kind or found.ndim != dimensions or not found.size:
            raise ScoringError(
                f"{path.name}: expected {name} of kind {kind} with {dimensions} dimensions and not empty, "
                f"found {found.dtype} {found.shape}."
            )
    return arrays
