"""Install an official dataset: the needed files of an archive or a copy, verified.

Only these files are extracted, under names of the rules, and the dataset appears once they are verified.
"""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from suite.datasets.catalogue import CatalogueEntry, DownloadSource, Ratings
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, storage_errors
from suite.datasets.prepare import building, write_manifest
from suite.datasets.verify import sha256_file

Streams = Iterator[tuple[str, IO[bytes]]]  # (the dataset's file, its content)
# zipfile reports missing members and encryption by the last three.
ARCHIVE_ERRORS = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError),
    *(KeyError, NotImplementedError, RuntimeError),
)

_BLOCK = 1 << 16
_FIX = "Take the publisher's file unchanged."


def members(entry: CatalogueEntry, source: DownloadSource) -> dict[str, str]:
    """The used members of the archive, and the dataset's file that each becomes."""
    if source.member is not None:
        return {source.member: next(iter(entry.files))}
    return {name: name for name in entry.files}


def verify_archive(source: DownloadSource, path: Path) -> None:
    """Size and SHA-256 of the archive at ``path`` must be the publisher's, where it gives them."""
    fix = "Fetch it again; if it differs again, the publisher has changed the file: report it."
    with storage_errors(path):
        size = path.stat().st_size
        if size != source.bytes:
            raise DatasetCorrupt(str(path), f"{source.bytes} bytes", f"{size} bytes", fix)
        found = sha256_file(path)
    if source.sha256 and found != source.sha256:
        raise DatasetCorrupt(str(path), f"sha256 {source.sha256}", found, fix)


def install_copy(entry: CatalogueEntry, source: DownloadSource, copy: Path, root: Path) -> None:
    """Install from ``copy``: the publisher's archive, the dataset's files, or a folder with either."""
    wanted, archive = members(entry, source), source.url.rsplit("/", 1)[-1]
    if not copy.exists():
        names = " or ".join((archive, *wanted))
        raise DatasetMissing(f"{copy}: no such file. FROM takes the publisher's {names}.")
    found = _loose(copy, wanted)
    if found is None and copy.is_dir():
        if not (copy / archive).is_file():
            names = ", ".join((*wanted, archive))
            raise DatasetMissing(f"{copy}: expected {names} in this folder, found none or not all of them.")
        copy = copy / archive
    if found is None:
        verify_archive(source, copy)
        install_archive(entry, source, copy, root)
        return
    with ExitStack() as stack, storage_errors(copy):
        streams = [(name, stack.enter_context(path.open("rb"))) for name, path in found.items()]
        install(entry, iter(streams), root, {})


def _loose(copy: Path, wanted: Mapping[str, str]) -> dict[str, Path] | None:
    """The dataset's files outside an archive; None unless all of them exist."""
    if copy.is_file():
        archive = zipfile.is_zipfile(copy) or tarfile.is_tarfile(copy)
        return None if archive or len(wanted) > 1 else dict.fromkeys(wanted.values(), copy)
    found = {}
    for member, name in wanted.items():
        paths = (copy / member, copy / Path(member).name)
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return None
        found[name] = path
    return found


def install_archive(entry: CatalogueEntry, source: DownloadSource, archive: Path, root: Path) -> None:
    """Install the dataset from a verified archive."""
    wanted = members(entry, source)
    opened = _zipped if zipfile.is_zipfile(archive) else _tarred
    try:
        with opened(archive, wanted) as streams:
            install(entry, streams, root, {"archive_sha256": source.sha256})
    except ARCHIVE_ERRORS as error:
        fix = "Fetch the publisher's archive again."
        expected = f"an archive with {', '.join(wanted)}"
        raise DatasetCorrupt(str(archive), expected, str(error), fix) from error


@contextmanager
def _zipped(archive: Path, wanted: Mapping[str, str]) -> Iterator[Streams]:
    with zipfile.ZipFile(archive) as zipped:

        def streams() -> Streams:
            for member, name in wanted.items():
                with zipped.open(member) as stream:
                    yield name, stream

        yield streams()


@contextmanager
def _tarred(archive: Path, wanted: Mapping[str, str]) -> Iterator[Streams]:
    with tarfile.open(archive, "r:gz") as tarred:

        def streams() -> Streams:
            for member in tarred:
                if member.name in wanted and (stream := tarred.extractfile(member)) is not None:
                    yield wanted[member.name], stream

        yield streams()


def install(entry: CatalogueEntry, streams: Streams, root: Path, parameters: Mapping[str, Any]) -> None:
    """Copy ``streams`` to the dataset's files, verify them, write the manifest and rename the folder."""
    with storage_errors(root), building(entry.name, root) as folder:
        digests: dict[str, str] = {}
        for name, stream in streams:
            if name in digests:
                raise DatasetCorrupt(name, "one file of this name", "another one", _FIX)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            digests[name] = _copy(entry, name, stream, folder / name)
        if missing := sorted(set(entry.files) - set(digests)):
            raise DatasetCorrupt(missing[0], "this file", "none in the archive", _FIX)
        if entry.ratings:
            _check_ratings(folder / next(iter(entry.files)), entry.ratings)
        write_manifest(entry, folder, digests, parameters)


def _copy(entry: CatalogueEntry, name: str, stream: IO[bytes], target: Path) -> str:
    """SHA-256 of the file written to ``target``; DatasetCorrupt where it differs from the rules."""
    file, limit = entry.files[name], entry.files[name].bytes
    published = entry.published.get(name, "")
    digest, other = (
        hashlib.sha256(),
        hashlib.new(published.partition(":")[0] or "sha1", usedforsecurity=False),
    )
    size = 0
    with target.open("wb") as out:
        # A known size also limits an archive that would fill the disk.
        while block := stream.read(_BLOCK if limit is None else min(_BLOCK, limit + 1 - size)):
            digest.update(block)
            other.update(block)
            size += out.write(block)
    if limit is not None and size != limit:
        found = f"more than {limit}" if size > limit else str(size)
        raise DatasetCorrupt(name, f"{limit} bytes", found, _FIX)
    if file.sha256 and digest.hexdigest() != file.sha256:
        raise DatasetCorrupt(name, f"sha256 {file.sha256}", digest.hexdigest(), _FIX)
    if published and f"{other.name}:{other.hexdigest()}" != published:
        raise DatasetCorrupt(name, published, f"{other.name}:{other.hexdigest()}", _FIX)
    return digest.hexdigest()


def _check_ratings(path: Path, expected: Ratings) -> None:
    """DatasetCorrupt unless all lines are ``user::item::rating::time`` and the counts are ``expected``."""
    users: set[bytes] = set()
    items: set[bytes] = set()
    number = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            fields = line.rstrip(b"\r\n").split(b"::")
            if len(fields) != 4 or not all(field.isdigit() for field in fields):
                shown = line[:40].decode("ascii", "backslashreplace")
                where = f"{path.name} line {number}"
                raise DatasetCorrupt(where, "UserID::MovieID::Rating::Timestamp", repr(shown), _FIX)
            users.add(fields[0])
            items.add(fields[1])
    found = Ratings(number, len(users), len(items))
    if found != expected:
        raise DatasetCorrupt(path.name, str(expected), str(found), _FIX)
