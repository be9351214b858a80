"""Images as files (SIF of apptainer, squashfs of enroot): their hash, and the record of where they came from.

The hash of such a file is not a digest of the registry: conversion is not reproducible. So the import itself
is recorded beside the file, at ``<file>.import.json``: the reference with its digest, the hash of the file it
gave, tool and time. A file without that record, or changed since, can only be claimed to be some image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.containers.engines.attestation import EngineProblem
from suite.containers.engines.container import client_environment

SUFFIXES = {"apptainer": ".sif", "enroot": ".sqsh"}
_REFERENCE = re.compile(r"(?P<repository>[^@\s]+?)(:[\w][\w.-]{0,127})?@(?P<digest>sha256:[0-9a-f]{64})")
_IMPORT_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Import:
    """One import. ``reference``: ``repository@sha256:…``; ``file_digest``: 64 hexadecimal digits."""

    reference: str
    file_digest: str
    tool: str
    imported_at: str


def file_digest(path: Path) -> str:
    """SHA-256 of ``path`` in hexadecimal, kept in ``<file>.sha256.json`` while the file stays what it is.

    That is told by inode, size, and times of content and status: the last cannot be set by a program. Raises
    OSError.
    """
    stat = path.stat()
    mark = {"bytes": stat.st_size, "inode": stat.st_ino, "mtime_ns": stat.st_mtime_ns}
    mark["ctime_ns"] = stat.st_ctime_ns
    sidecar = path.with_name(path.name + ".sha256.json")
    kept = _read(sidecar)
    if kept.get("mark") == mark and isinstance(kept.get("sha256"), str):
        return str(kept["sha256"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(OSError):  # a folder that is shared read-only: hashed again next time
        _write(sidecar, {"mark": mark, "sha256": digest})
    return digest


def recorded_import(path: Path) -> Import | None:
    """The record beside ``path``; None where there is none, or it is about another file or by tag alone."""
    kept = _read(path.with_name(path.name + ".import.json"))
    try:
        record = Import(**{name: str(kept[name]) for name in Import.__slots__})
    except KeyError:
        return None
    if record.file_digest != file_digest(path) or not _REFERENCE.fullmatch(record.reference):
        return None
    return record


def import_argv(tool: str, reference: str, target: Path) -> list[str]:
    """The command that imports ``reference`` (``repository[:tag]@sha256:…``) into the file ``target``.

    The tag is left out, the digest decides: apptainer takes no reference with both. Raises EngineProblem for
    a reference without digest.
    """
    repository = canonical(reference).partition("@")[0]
    digest = reference.rpartition("@")[2]
    if tool == "apptainer":
        return ["apptainer", "pull", "--disable-cache", str(target), f"docker://{repository}@{digest}"]
    if tool == "enroot":
        registry, slash, image = repository.partition("/")
        if slash and any(mark in registry for mark in ".:"):  # else it is a name on Docker Hub
            repository = f"{registry}#{image}"
        return ["enroot", "import", "--output", str(target), f"docker://{repository}@{digest}"]
    raise EngineProblem(f"expected a tool among {', '.join(SUFFIXES)}, found {tool}")


def import_image(
    tool: str,
    version: str,
    reference: str,
    target: Path,
    run: Callable[[list[str]], None] | None = None,
) -> Import:
    """Import ``reference`` into ``target`` and record it. Raises EngineProblem where the tool fails.

    ``run`` executes one argv list, raising where it fails (the default is a subprocess).
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{os.getpid()}.{target.name}")  # the suffix stays: tools go by it
    try:
        (run or _run)(import_argv(tool, reference, partial))
        if not partial.is_file():
            raise EngineProblem(f"{tool} said that it had imported {reference}, but wrote no file")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = Import(canonical(reference), file_digest(target), f"{tool} {version}", now)
    _write(target.with_name(target.name + ".import.json"), asdict(record))
    return record


def canonical(reference: str) -> str:
    """``repository@sha256:…`` of a reference. Raises EngineProblem where it has no digest."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise EngineProblem(f"expected a reference with a digest (repository@sha256:…), found {reference}")
    return f"{match['repository']}@{match['digest']}"


def _run(argv: list[str]) -> None:
    further = (
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
    )
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_IMPORT_S,
            env=client_environment(*further, "TMPDIR", "APPTAINER_TMPDIR", "ENROOT_CONFIG_PATH"),
            check=False,
        )
    except FileNotFoundError:
        raise EngineProblem(f"the program {argv[0]} is not on PATH: install it") from None
    except subprocess.TimeoutExpired:
        raise EngineProblem(f"{argv[0]} did not finish the import in {_IMPORT_S / 3600:.0f} h") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise EngineProblem(f"{argv[0]} could not import {argv[-1]} ({last})")


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    partial.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    partial.replace(path)
