"""Container images as files (SIF of apptainer, squashfs of enroot): their hash and the record of the import.

The hash of such a file is not a digest of the image registry: conversion is not reproducible. So the suite
records the import beside the file, in ``<file>.import.json``: the reference with its digest, the hash of the
resulting file, tool and time. For a file without that record, or changed since, the image is only claimed.
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
class ImportRecord:
    """One import. ``reference``: ``repository@sha256:…``; ``file_digest``: 64 hexadecimal digits."""

    reference: str
    file_digest: str
    tool: str
    imported_at: str


def file_digest(path: Path) -> str:
    """SHA-256 of ``path`` in hexadecimal, kept in ``<file>.sha256.json`` while the file does not change.

    Inode, size, and times of content and status show a change: no program can set the last one. Raises
    OSError.
    """
    stat = path.stat()
    state = {"bytes": stat.st_size, "inode": stat.st_ino, "mtime_ns": stat.st_mtime_ns}
    state["ctime_ns"] = stat.st_ctime_ns
    sidecar = path.with_name(path.name + ".sha256.json")
    record = _read(sidecar)
    if record.get("state") == state and isinstance(record.get("sha256"), str):
        return str(record["sha256"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(OSError):  # a read-only shared folder: the next call hashes again
        _write(sidecar, {"state": state, "sha256": digest})
    return digest


def recorded_import(path: Path) -> ImportRecord | None:
    """The record beside ``path``; None where there is none, or it describes another file or has no digest."""
    content = _read(path.with_name(path.name + ".import.json"))
    try:
        record = ImportRecord(**{name: str(content[name]) for name in ImportRecord.__slots__})
    except KeyError:
        return None
    if record.file_digest != file_digest(path) or not _REFERENCE.fullmatch(record.reference):
        return None
    return record


def import_argv(tool: str, reference: str, target: Path) -> list[str]:
    """The command that imports ``reference`` (``repository[:tag]@sha256:…``) into the file ``target``.

    The command omits the tag, because apptainer takes no reference with tag and digest. Raises EngineProblem
    for a reference without digest.
    """
    repository = canonical(reference).partition("@")[0]
    digest = reference.rpartition("@")[2]
    if tool == "apptainer":
        return ["apptainer", "pull", "--disable-cache", str(target), f"docker://{repository}@{digest}"]
    if tool == "enroot":
        host, slash, image = repository.partition("/")
        if slash and any(character in host for character in ".:"):  # else it is a name on Docker Hub
            repository = f"{host}#{image}"
        return ["enroot", "import", "--output", str(target), f"docker://{repository}@{digest}"]
    raise EngineProblem(f"expected a tool among {', '.join(SUFFIXES)}, found {tool}")


def import_image(
    tool: str,
    version: str,
    reference: str,
    target: Path,
    run: Callable[[list[str]], None] | None = None,
) -> ImportRecord:
    """Import ``reference`` into ``target`` and record it. Raises EngineProblem where the tool fails.

    ``run`` executes one argv list and raises where it fails (the default is a subprocess).
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{os.getpid()}.{target.name}")  # the tools look at the suffix
    try:
        (run or _run)(import_argv(tool, reference, partial))
        if not partial.is_file():
            raise EngineProblem(f"{tool} imported {reference} without an error, but wrote no file")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = ImportRecord(canonical(reference), file_digest(target), f"{tool} {version}", now)
    _write(target.with_name(target.name + ".import.json"), asdict(record))
    return record


def canonical(reference: str) -> str:
    """``repository@sha256:…`` of a reference. Raises EngineProblem where it has no digest."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise EngineProblem(f"expected a reference with a digest (repository@sha256:…), found {reference}")
    return f"{match['repository']}@{match['digest']}"


def _run(argv: list[str]) -> None:
    proxies = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    further = (*proxies, "SSL_CERT_FILE", "TMPDIR", "APPTAINER_TMPDIR", "ENROOT_CONFIG_PATH")
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_IMPORT_S,
            env=client_environment(*further),
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
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    partial.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    partial.replace(path)
