"""Bring a dataset to the point where a worker may read it: present, complete and verified.

Mini data are generated when first asked for. Official data are only verified: fetching them is a person's
decision (see ``suite.datasets.fetch``). A folder appears by one rename, so that two preparing processes, or
one that is killed, never leave half a dataset under the final name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.datasets import registry
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, ReadOnly, storage
from suite.datasets.registry import Entry, File
from suite.workloads.gnmt import index as gnmt_index

MANIFEST = "manifest.json"
STAMP = ".verified.json"

# What is being done, bytes done, bytes in all (None where unknown).
Progress = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A verified dataset on disk."""

    name: str
    kind: str
    path: Path
    digest: str
    files: Mapping[str, File]
    bytes: int
    generator: str | None
    derived: tuple[Path, ...] = ()  # what the reader uses beside the files, made of them on this machine

    @property
    def paths(self) -> list[Path]:
        """What a run may read: the data files in the order of names (no manifest), then what is derived."""
        return [*(self.path / name for name in sorted(self.files)), *self.derived]

    def identity(self) -> dict[str, str | int | None]:
        """The log header's ``dataset``; no generator where the data are official."""
        return {
            "name": self.name,
            "kind": self.kind,
            "digest": self.digest,
            "files": len(self.files),
            "bytes": self.bytes,
            "generator": self.generator,
        }


def prepare(name: str, root: Path, progress: Progress | None = None, verify: bool = False) -> Prepared:
    """Dataset ``name`` under ``root``, generated when it is a mini one and absent.

    SHA-256 of every file is computed at the first use and with ``verify``; later it is enough that sizes and
    times are those recorded then. Raises ``UnknownDataset``, ``DatasetMissing``, ``DatasetCorrupt``,
    ``NoSpace``, ``ReadOnly``.
    """
    entry = registry.entry(name)
    folder = root / name
    if not folder.exists():
        if entry.kind != "mini":
            raise missing(entry, folder)
        _generate(entry, root, progress)
    return derive(entry, check(entry, folder, progress, verify), progress)


def available(name: str, root: Path) -> bool:
    """Whether :func:`prepare` would succeed without generating or fetching; a corrupt dataset raises."""
    entry = registry.entry(name)
    folder = root / name
    if not folder.exists():
        return False
    check(entry, folder, None, False)
    return True


def derive(entry: Entry, prepared: Prepared, progress: Progress | None) -> Prepared:
    """``prepared`` with the index of its text, where the dataset is too large to be parsed by every run.

    Made when it is missing or of other text; a place that cannot be written is read without one.
    """
    if entry.recipe is None or entry.workload != "gnmt":
        return prepared
    target = prepared.path / gnmt_index.FOLDER
    if not gnmt_index.current(target, prepared.digest):
        task = f"indexing {entry.name}"
        try:
            with storage(prepared.path), building(target.name, prepared.path, replacing=True) as folder:
                told = progress or (lambda *_: None)
                gnmt_index.write(prepared.path, folder, prepared.digest, lambda a, b: told(task, a, b))
        except ReadOnly:
            return prepared
        except ValueError as error:
            raise DatasetCorrupt(
                str(prepared.path), "text that fits its vocabulary", str(error), ""
            ) from error
    return replace(prepared, derived=tuple(sorted(target.iterdir())))


def missing(entry: Entry, folder: Path) -> DatasetMissing:
    """The error for an official dataset that is not there."""
    if entry.unavailable:
        return DatasetMissing(f"{entry.name} is not in {folder}: {entry.unavailable}. Use data=synthetic.")
    command = f"make data WORKLOAD={entry.workload}"
    return DatasetMissing(
        f"{entry.name} is not in {folder}. Run `{command}` to fetch it, `{command} FROM=path` to take a copy "
        f"that you have, or use data=synthetic."
    )


def _generate(entry: Entry, root: Path, progress: Progress | None) -> None:
    generator = registry.GENERATORS[entry.name]
    if progress:
        progress(f"generating {entry.name}", 0, entry.bytes)
    contents = generator.generate()
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    if registry.digest_of(checksums) != entry.digest:
        raise DatasetCorrupt(
            f"generator {generator.version}",
            f"digest {entry.digest}",
            registry.digest_of(checksums),
            "This Python or numpy computes other bytes: run `make test`, and report it.",
        )
    with storage(root), building(entry.name, root) as folder:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        write_manifest(entry, folder, checksums, generator.parameters())
    if progress:
        progress(f"generating {entry.name}", entry.bytes or 0, entry.bytes)


@contextmanager
def building(name: str, root: Path, replacing: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``root/name`` when the block ends well, unless another came first.

    ``replacing`` removes what has the name first.
    """
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
    temporary.mkdir()
    try:
        yield temporary
        for path in temporary.iterdir():
            _sync(path)
        if replacing:
            shutil.rmtree(root / name, ignore_errors=True)
        try:
            temporary.rename(root / name)
        except OSError:
            if not replacing and not (root / name / MANIFEST).exists():
                raise
        else:
            _sync(root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_manifest(
    entry: Entry, folder: Path, checksums: Mapping[str, str], parameters: Mapping[str, Any]
) -> None:
    """``manifest.json`` beside the files of ``folder``."""
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha} for name, sha in checksums.items()
    }
    manifest = {
        "name": entry.name,
        "kind": entry.kind,
        "generator": entry.generator,
        "parameters": dict(parameters),
        "files": files,
        "digest": registry.digest_of(checksums),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", "utf-8")


def check(entry: Entry, folder: Path, progress: Progress | None, verify: bool) -> Prepared:
    """Compare ``folder`` with its manifest and the rules; see :func:`prepare`."""
    mend = _mend(entry, folder)
    manifest = read_manifest(folder, mend)
    expected = _expected(entry, manifest, mend)
    with storage(folder):
        seen = _seen(folder, expected, mend)
        if verify or _stamp(folder) != {"digest": manifest["digest"], "files": seen}:
            _full_check(folder, expected, entry.md5, progress, mend)
            _write_stamp(folder, {"digest": manifest["digest"], "files": seen})
    return Prepared(
        entry.name,
        entry.kind,
        folder,
        manifest["digest"],
        expected,
        sum(file.bytes or 0 for file in expected.values()),
        manifest["generator"],
    )


def _mend(entry: Entry, folder: Path) -> str:
    if entry.kind == "mini":
        return f"Remove the folder {folder}: the next run generates it again."
    command = f"make data WORKLOAD={entry.workload}"
    return f"Remove the folder {folder} and run `{command}` again."


def read_manifest(folder: Path, mend: str) -> dict[str, Any]:
    """The parsed manifest of ``folder``; raises ``DatasetCorrupt`` where it is not one."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        for name, file in manifest["files"].items():
            if not isinstance(file["bytes"], int) or not re.fullmatch("[0-9a-f]{64}", file["sha256"]):
                raise ValueError(f"bad entry of {name}")
        found = registry.digest_of({name: file["sha256"] for name, file in manifest["files"].items()})
        if manifest["digest"] != found:
            raise ValueError("its digest is not that of its files")
        if not {"name", "kind", "generator"} <= manifest.keys():
            raise ValueError("a field is missing")
    except FileNotFoundError:
        raise DatasetCorrupt(str(path), "a manifest", "none", mend) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetCorrupt(str(path), "a manifest as this suite writes it", str(error), mend) from error
    return dict(manifest)


def _expected(entry: Entry, manifest: Mapping[str, Any], mend: str) -> dict[str, File]:
    """Sizes and checksums that the files must have: the rules', else the manifest's."""
    if set(manifest["files"]) != set(entry.files):
        raise DatasetCorrupt(MANIFEST, f"the files {list(entry.files)}", f"{sorted(manifest['files'])}", mend)
    for field, wanted in (("name", entry.name), ("generator", entry.generator), ("digest", entry.digest)):
        if wanted is not None and manifest[field] != wanted:
            raise DatasetCorrupt(MANIFEST, f"{field} {wanted} (rules)", str(manifest[field]), mend)
    listed = {name: File(file["bytes"], file["sha256"]) for name, file in sorted(manifest["files"].items())}
    return {name: entry.files[name] if entry.files[name].sha256 else listed[name] for name in listed}


def _seen(folder: Path, expected: Mapping[str, File], mend: str) -> dict[str, list[int]]:
    """Size and times of every file; a missing file or another size raises."""
    seen = {}
    for name, file in expected.items():
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            raise DatasetCorrupt(str(folder / name), f"{file.bytes} bytes", "no such file", mend) from None
        if status.st_size != file.bytes:
            raise DatasetCorrupt(str(folder / name), f"{file.bytes} bytes", f"{status.st_size}", mend)
        seen[name] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return seen


def _full_check(
    folder: Path, expected: Mapping[str, File], md5: Mapping[str, str], progress: Progress | None, mend: str
) -> None:
    total = sum(file.bytes or 0 for file in expected.values())
    done = 0
    for name, file in expected.items():
        found = sha256_file(folder / name)
        if found != file.sha256:
            raise DatasetCorrupt(str(folder / name), f"sha256 {file.sha256}", found, mend)
        if name in md5 and (published := md5_file(folder / name)) != md5[name]:
            raise DatasetCorrupt(str(folder / name), f"md5 {md5[name]} (rules)", published, mend)
        done += file.bytes or 0
        if progress:
            progress(f"verifying {folder.name}", done, total)


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def md5_file(path: Path) -> str:
    """MD5 of a file's content: only to compare with what publishers give, never as the only identity."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _stamp(folder: Path) -> Any:
    try:
        return json.loads((folder / STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _write_stamp(folder: Path, stamp: Mapping[str, Any]) -> None:
    """Record what was verified; a read-only dataset is simply verified in full each time."""
    temporary = folder / f"{STAMP}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps(stamp), "utf-8")
        temporary.replace(folder / STAMP)
    except OSError:
        with suppress(OSError):  # a read-only file system refuses this too
            temporary.unlink()
