"""The trained backbone that quality runs of the detector start from: fetched and converted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from suite.contract import BadData
from suite.datasets import torch_checkpoint
from suite.datasets.catalogue import CatalogueEntry, DownloadSource, Weights
from suite.datasets.download import DOWNLOADS, discard, download, size_of
from suite.datasets.errors import DatasetCorrupt, DatasetError, FetchFailed, storage
from suite.datasets.prepare import Prepared
from suite.datasets.verify import Progress, sha256_file
from suite.workloads.faster_rcnn import backbone, spec


def take_weights(
    entry: CatalogueEntry, prepared: Prepared, progress: Progress | None, copy: Path | None
) -> bool:
    """Whether the backbone lies beside the dataset now: found there, in ``copy``, or fetched.

    ``copy`` is the publisher's checkpoint or a folder that may hold it; nothing is then fetched. Raises
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

    It is read only if it has the published checksum. Raises DatasetCorrupt, StorageError.
    """
    with storage(checkpoint):
        found = sha256_file(checkpoint)
    if not found.startswith(weights.sha256):
        fix = "Fetch it again; if it stays so, the publisher has changed the file: report it."
        raise DatasetCorrupt(str(checkpoint), f"sha256 {weights.sha256}…", found, fix)
    dims = spec.dimensions("reference", spec.VARIANTS["reference"][0])
    try:
        arrays = backbone.converted(torch_checkpoint.read(checkpoint), dims, checkpoint.name)
    except BadData as error:
        raise DatasetError(str(error)) from error
    part = folder / f".{backbone.FILE}.{os.getpid()}"
    with storage(folder):
        with part.open("wb") as out:
            np.savez(out, **arrays)  # type: ignore[arg-type, unused-ignore]
        part.replace(folder / backbone.FILE)
    return found


def start_digest(folder: Path) -> str:
    """The digest of what quality runs start from with the backbone in ``folder``; DatasetError if it is bad.

    It is what the rules hold of it, once it is settled (``quality.<variant>.initial_parameters``).
    """
    dims = spec.dimensions("reference", spec.VARIANTS["reference"][0])
    try:
        return backbone.Start(dims, backbone.read(folder, dims)).digest()
    except BadData as error:
        raise DatasetError(f"{folder}: {error}") from error
