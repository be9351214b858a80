"""Fetch an official dataset of several files from several addresses, or take the user's copy.

Each file is published plain or as one member of a zip, with a checksum and mostly its size. A download is
read up to that size and used only if every published checksum is equal.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path

from suite.datasets.catalogue import CatalogueEntry, Piece
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, FetchFailed, storage_errors
from suite.datasets.install import ARCHIVE_ERRORS
from suite.datasets.prepare import PreparedDataset, building, check, write_manifest
from suite.datasets.verify import Progress

LARGEST = 64 << 20  # the most bytes of a file of unpublished size
_TIMEOUT_S = 30
_AGENT = "deep-learning-benchmark-suite"
_FIX = "Take the publisher's file unchanged."


def fetch_pieces(
    entry: CatalogueEntry, root: Path, progress: Progress | None = None, copy: Path | None = None
) -> PreparedDataset:
    """Dataset ``entry`` under ``root`` from its publishers, or from the folder ``copy`` (files or zips).

    Raises ``DatasetMissing``, ``DatasetCorrupt``, ``FetchFailed``, ``NoSpace``, ``ReadOnly``.
    """
    found: dict[str, bytes] = {}
    for name, piece in entry.pieces.items():
        if progress:
            progress(f"fetching {name}", 0, piece.bytes)
        size = entry.files[name].bytes or LARGEST
        if copy is None:
            found[name] = _unpacked(piece, _download(piece), size)
        else:
            found[name] = _copied(copy, name, piece, size)
        verify(name, found[name], piece.checksum, piece.lines)
    _install(entry, root, found)
    return check(entry, root / entry.name, progress, verify=True)


def _download(piece: Piece) -> bytes:
    fix = "Run the same command again, or fetch the files by other means and give their folder as FROM=path."
    request = urllib.request.Request(piece.url, headers={"User-Agent": _AGENT})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read((piece.bytes or LARGEST) + 1)
    except urllib.error.HTTPError as error:
        raise FetchFailed(f"{piece.url}: the server answered {error.code} {error.reason}. {fix}") from error
    except (OSError, http.client.HTTPException) as error:
        raise FetchFailed(f"{piece.url}: {str(error) or type(error).__name__}. {fix}") from error
    if piece.bytes is not None and len(content) < piece.bytes:
        raise FetchFailed(f"{piece.url}: have {len(content)} of {piece.bytes} bytes. {fix}")
    return content


def _copied(folder: Path, name: str, piece: Piece, size: int) -> bytes:
    """The file ``name`` of ``folder`` or its subfolder ``data``, else the member of the publisher's zip."""
    archive = piece.url.rsplit("/", 1)[-1]
    wanted = {name: size, f"data/{name}": size}
    wanted |= {archive: piece.bytes or LARGEST} if piece.member else {}
    for file, limit in wanted.items():
        path = folder / file
        if path.is_file():
            with storage_errors(path), path.open("rb") as stream:
                content = stream.read(limit + 1)
            return _unpacked(piece, content, size) if file == archive else content
    raise DatasetMissing(f"{folder}: expected {' or '.join(wanted)} in this folder, found none.")


def _unpacked(piece: Piece, content: bytes, size: int) -> bytes:
    """The member of the zip ``content``, at most one byte more than ``size``; a plain file unchanged."""
    if piece.member is None:
        return content
    if piece.archive is not None:
        verify(piece.url, content, piece.archive)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as zipped, zipped.open(piece.member) as stream:
            return stream.read(size + 1)
    except ARCHIVE_ERRORS as error:
        raise DatasetCorrupt(piece.url, f"a zip with {piece.member}", str(error), _FIX) from error


def verify(name: str, content: bytes, checksum: str, lines: int | None = None) -> None:
    """DatasetCorrupt unless ``content`` has the published checksum ("md5:…", "sha1:…") and lines."""
    kind, _, wanted = checksum.partition(":")
    found = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
    if found != wanted:
        raise DatasetCorrupt(name, f"{kind} {wanted}", f"{found} of {len(content)} bytes", _FIX)
    if lines is not None and content.count(b"\n") != lines:
        raise DatasetCorrupt(name, f"{lines} lines", str(content.count(b"\n")), _FIX)


def _install(entry: CatalogueEntry, root: Path, contents: Mapping[str, bytes]) -> None:
    with storage_errors(root), building(entry.name, root) as folder:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        published = {name: piece.checksum for name, piece in entry.pieces.items()}
        write_manifest(entry, folder, sums, {"published": published})
