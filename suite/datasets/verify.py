"""Compare files with their checksums: in full at first, later where size or times changed, on all cores."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import SystemRandom
from typing import Any, TypeVar

from suite.datasets.catalogue import File
from suite.datasets.errors import DatasetCorrupt

# The task, bytes done, bytes in total (None where unknown).
Progress = Callable[[str, int, "int | None"], None]
Hasher = Callable[[Path, str], str]  # a file and its name in the dataset; DatasetCorrupt or OSError

SAMPLE = 64  # files of a large dataset whose content is compared although sizes and times are unchanged
_LARGE = 1000  # files: of smaller datasets no sample is read
_AHEAD = 256

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
    """The stamp file with the files verified under ``digest``; with ``again`` the stamp is ignored."""

    stamp: Path
    digest: str
    progress: Progress | None
    again: bool


def sha256_file(path: Path, name: str = "") -> str:
    """SHA-256 of a file's content."""
    del name
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def require_published(path: Path, wanted: str, fix: str, where: str = "") -> None:
    """DatasetCorrupt unless the file has the publisher's checksum, "md5:…" or "sha1:…"."""
    kind = wanted.partition(":")[0]
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False))
    if (found := f"{kind}:{digest.hexdigest()}") != wanted:
        raise DatasetCorrupt(where or str(path), wanted, found, fix)


def compare(
    folder: Path,
    expected: Mapping[str, File],
    fix: str,
    state: VerifiedFiles | None = None,
    hasher: Hasher = sha256_file,
    published: Mapping[str, str] | None = None,
) -> dict[str, File]:
    """``expected`` with the size of every file; DatasetCorrupt names the first file that differs.

    Without ``state`` all files are hashed, else those whose size or times changed since the last time, and a
    sample of the others. A hashed file that is in ``published`` must have that checksum too.
    """
    published = published or {}
    seen = {name: _status(folder, name, file, fix) for name, file in expected.items()}
    before = stamped(state)
    changed = [name for name, status in seen.items() if before.get(name) != status]
    unchanged = [name for name, status in seen.items() if before.get(name) == status]
    chosen = SystemRandom().sample(unchanged, min(SAMPLE, len(unchanged))) if len(seen) > _LARGE else []

    def digest(name: str) -> tuple[str, str]:
        found = hasher(folder / name, name)
        # The manifest's SHA-256 was computed on this machine; the publisher's checksum is independent of it.
        if found == expected[name].sha256 and name in published:
            require_published(folder / name, published[name], fix)
        return name, found

    total = sum(seen[name][0] for name in changed)
    done = 0
    for name, found in parallel(digest, [*chosen, *changed]):
        if found != expected[name].sha256:
            raise DatasetCorrupt(str(folder / name), f"sha256 {expected[name].sha256}", found, fix)
        if state is not None and state.progress and changed:
            done = min(total, done + seen[name][0])
            state.progress(f"verifying {folder.name}", done, total)
    if state is not None and changed:
        write_stamp(state.stamp, state.digest, seen)
    return {name: replace(file, bytes=seen[name][0]) for name, file in expected.items()}


def parallel(task: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """The results of ``task`` in the order of ``items``, on as many threads as this process has cores."""
    workers = len(os.sched_getaffinity(0))
    if len(items) < 2 * workers:
        yield from map(task, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        # In parts, so that a million futures or results never exist at the same time.
        try:
            for part in _parts(items):
                yield from pool.map(task, part)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _parts(items: Sequence[A]) -> Iterable[Sequence[A]]:
    return (items[at : at + _AHEAD] for at in range(0, len(items), _AHEAD))


def status(path: Path) -> list[int]:
    """Size, and times of change of content and status; while they are equal the content is unchanged."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _status(folder: Path, name: str, file: File, fix: str) -> list[int]:
    wanted = "a file" if file.bytes is None else f"{file.bytes} bytes"
    try:
        found = status(folder / name)
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetCorrupt(str(folder / name), wanted, "no such file", fix) from None
    if file.bytes not in (None, found[0]):
        raise DatasetCorrupt(str(folder / name), wanted, f"{found[0]}", fix)
    return found


def stamped(state: VerifiedFiles | None) -> Mapping[str, Any]:
    """The recorded statuses by file name; empty where there is no stamp of this digest."""
    if state is None or state.again:
        return {}
    try:
        stamp = json.loads(state.stamp.read_text("utf-8"))
        files = stamp["files"] if stamp["digest"] == state.digest else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return files if isinstance(files, dict) else {}


def write_stamp(stamp: Path, digest: str, seen: Mapping[str, list[int]]) -> None:
    """Record the :func:`status` of the verified files; a read-only dataset is verified in full each time."""
    temporary = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"digest": digest, "files": seen}), "utf-8")
        temporary.replace(stamp)
    except OSError:
        with suppress(OSError):  # on a read-only file system this fails as well
            temporary.unlink()
