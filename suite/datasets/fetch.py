"""Fetch an official dataset from its publisher, or take the user's copy."""

from __future__ import annotations

from pathlib import Path

from suite.datasets import coco, wmt16
from suite.datasets.catalogue import CatalogueEntry
from suite.datasets.coco_weights import take_weights
from suite.datasets.download import DOWNLOADS, discard, download, require_space
from suite.datasets.errors import DatasetError, DatasetMissing, storage_errors
from suite.datasets.fetch_pieces import fetch_pieces
from suite.datasets.install import install_archive, install_copy
from suite.datasets.prepare import PreparedDataset, check, derive, missing_dataset
from suite.datasets.site_folder import take_folder
from suite.datasets.verify import Progress


def _require_same_source(entry: CatalogueEntry, folder: Path, copy: Path | None) -> None:
    """DatasetError if ``folder`` links to other images than those in ``copy``, or ``copy`` is not there."""
    if copy is None:
        return
    if not copy.exists():
        raise DatasetMissing(f"{copy}: expected the files of {entry.name}, found no such file or folder.")
    wanted = copy.resolve()
    for link in sorted(one for one in folder.glob("*") if one.is_symlink()):
        source = link.resolve().parent
        if (wanted / link.name).is_dir() and wanted != source:
            raise DatasetError(
                f"{entry.name}: expected the images of {wanted}, found a dataset of those in {source}. "
                f"Remove {folder}, which only links to them, or set DATA_ROOT to another folder."
            )


def fetch(
    entry: CatalogueEntry,
    root: Path,
    progress: Progress | None = None,
    copy: Path | None = None,
    custom: bool = False,
) -> PreparedDataset:
    """Dataset ``entry`` under ``root``: the existing one, else from ``copy`` or from the publisher.

    ``copy`` is the publisher's archive, the unpacked files, or a folder that contains one of them; it is only
    read, and a folder of images is linked, not copied. ``custom``: ``copy`` is a custom dataset. Raises
    ``DatasetMissing``, ``DatasetCorrupt``, ``FetchFailed``, ``NoSpace``, ``ReadOnly``.
    """
    folder = root / entry.name
    if folder.exists():
        _require_same_source(entry, folder, copy)
        prepared = derive(entry, check(entry, folder, progress, verify=False), progress)
        if entry.weights is not None:
            take_weights(entry, prepared, progress, copy)
        return prepared
    if entry.unpacked is not None:
        return coco.obtain(entry, root, progress, copy, custom)
    if entry.images is not None and copy is not None:
        take_folder(entry, copy, root, progress, custom)
        return check(entry, folder, progress, verify=False)
    if entry.pieces:
        return fetch_pieces(entry, root, progress, copy)
    if entry.recipe is not None:
        return wmt16.obtain(entry, entry.recipe, root, progress, copy)
    if entry.source is None:
        raise missing_dataset(entry, folder)
    member_bytes = entry.bytes or 0
    if copy is None:
        require_space(root, entry.source.bytes + member_bytes)
        archive = download(entry.source, root / DOWNLOADS, progress)
        install_archive(entry, entry.source, archive, root)
        with storage_errors(root):
            discard(archive)
    else:
        require_space(root, member_bytes)
        install_copy(entry, entry.source, copy, root)
    return check(entry, folder, progress, verify=True)
