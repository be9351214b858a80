"""The trained backbone that quality runs of the detector start from: fetched and converted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from suite.contract import BadData
from suite.datasets import torch_checkpoint
from suite.datasets.catalogue import CatalogueEntry, DownloadSource, Weights
from suite.datasets.download import DOWNLOADS, discard, download, size_of
from suite.datasets.errors import DatasetCorrupt, DatasetError, FetchFailed, storage_errors
from suite.datasets.prepare import PreparedDataset
from suite.datasets.verify import Progress, sha256_file
from suite.workloads.faster_rcnn import backbone, spec


def take_weights(
    entry: CatalogueEntry, prepared: PreparedDataset, progress: Progress | None, copy: Path | None
) -> bool:
    """Convert the backbone from ``copy`` or a download if it is missing; returns whether it exists now.

    ``copy`` is the publisher's checkpoint or a folder that may contain it; then nothing is fetched. Raises
    ``DatasetCorrupt``, ``FetchFailed``, ``NoSpace``, ``ReadOnly``.
    """
    weights = entry.weights
    if weights is None or (prepared.path / backbone.FILE).exists():
        return weights is not None
    if copy is not None:
        path = copy / weights.name if copy.is_dir() else copy
        if not path.is_file() or path.name != weights.name:
            return False
        convert(weights, path, prepared.path)
        return True
    try:
        size = weights.bytes or size_of(weights.url)
        path = download(
            DownloadSource(weights.url, size, None, None), prepared.path.parent / DOWNLOADS, progress
        )
    except FetchFailed as error:
        fix = f"Quality runs start from {weights.name}: fetch it by other means and give it as FROM=path."
        raise FetchFailed(f"{entry.name} is verified in {prepared.path}. {error} {fix}") from error
    try:
        convert(weights, path, prepared.path)
    finally:
        discard(path)
    return True


def convert(weights: Weights, checkpoint: Path, folder: Path) -> str:
    """Write ``backbone.npz`` to ``folder`` and return the SHA-256 of ``checkpoint``.

    A checkpoint without the published checksum is not read. Raises DatasetCorrupt, StorageError.
    """
    with storage_errors(checkpoint):
        found = sha256_file(checkpoint)
    if not found.startswith(weights.sha256):
        fix = "Fetch it again; if it differs again, the publisher has changed the file: report it."
        raise DatasetCorrupt(str(checkpoint), f"sha256 {weights.sha256}…", found, fix)
    dims = spec.dimensions("reference", spec.VARIANTS["reference"][0])
    try:
        arrays = backbone.converted(torch_checkpoint.read(checkpoint), dims, checkpoint.name)
    except BadData as error:
        raise DatasetError(str(error)) from error
    part = folder / f".{backbone.FILE}.{os.getpid()}"
    with storage_errors(folder):
        with part.open("wb") as out:
            np.savez(out, **arrays)  # type: ignore[arg-type, unused-ignore]
        part.replace(folder / backbone.FILE)
    return found


def start_digest(folder: Path) -> str:
    """The digest of a quality run's initial parameters with the backbone in ``folder``.

    The rules have it as ``quality.<variant>.initial_parameters``. Raises DatasetError for a bad backbone.
    """
    dims = spec.dimensions("reference", spec.VARIANTS["reference"][0])
    try:
        return backbone.Start(dims, backbone.read(folder, dims)).digest()
    except BadData as error:
        raise DatasetError(f"{folder}: {error}") from error
