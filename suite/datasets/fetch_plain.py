"""Fetch an official dataset whose files are published one by one, or take a copy that somebody already has.

Sizes are not published with the checksums, so a download is not continued: it is read up to a limit and used
only if its MD5 is the published one. The files are a few megabytes.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from suite.datasets.errors import DatasetCorrupt, DatasetMissing, FetchFailed, storage
from suite.datasets.prepare import Prepared, building, check, write_manifest
from suite.datasets.registry import Entry, Plain
from suite.datasets.verify import Progress

LARGEST = 64 << 20  # bytes of one file; more is another file
_TIMEOUT_S = 30
_AGENT = "deep-learning-benchmark-suite"


def fetch_plain(
    entry: Entry, root: Path, progress: Progress | None = None, copy: Path | None = None
) -> Prepared:
    """Dataset ``entry`` under ``root`` from its publisher, or from the files in the folder ``copy``.

    Raises ``DatasetMissing``, ``DatasetCorrupt``, ``FetchFailed``, ``NoSpace``, ``ReadOnly``.
    """
    found: dict[str, bytes] = {}
    for name, source in entry.plain.items():
        if progress:
            progress(f"fetching {name}", 0, None)
        found[name] = _download(source) if copy is None else _read(copy, name)
        verify(name, source, found[name])
    _install(entry, root, found)
    return check(entry, root / entry.name, progress, verify=True)


def _download(source: Plain) -> bytes:
    request = urllib.request.Request(source.url, headers={"User-Agent": _AGENT})
    mend = "Run the same command again, or fetch the files by other means and give their folder as FROM=path."
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(LARGEST + 1)
    except urllib.error.HTTPError as error:
        raise FetchFailed(f"{source.url}: the server answered {error.code} {error.reason}. {mend}") from error
    except (OSError, http.client.HTTPException) as error:
        raise FetchFailed(f"{source.url}: {str(error) or type(error).__name__}. {mend}") from error
    return content


def _read(folder: Path, name: str) -> bytes:
    places = [folder / name, folder / "data" / name]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise DatasetMissing(f"{folder}: expected {name} in this folder or in data/ below it, found none.")
    with storage(path), path.open("rb") as stream:
        return stream.read(LARGEST + 1)


def verify(name: str, source: Plain, content: bytes) -> None:
    """MD5 and lines of ``content`` must be the published ones."""
    mend = "Take the publisher's file unchanged."
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != source.md5:
        raise DatasetCorrupt(name, f"md5 {source.md5}", f"{found} of {len(content)} bytes", mend)
    lines = content.count(b"\n")
    if lines != source.lines:
        raise DatasetCorrupt(name, f"{source.lines} lines", str(lines), mend)


def _install(entry: Entry, root: Path, contents: Mapping[str, bytes]) -> None:
    with storage(root), building(entry.name, root) as folder:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        published = {name: source.md5 for name, source in entry.plain.items()}
        write_manifest(entry, folder, sums, {"md5": published})
