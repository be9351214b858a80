"""The manifest of a bundle, and the files that it lists; both are untrusted input."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson

from suite.log.files import read_in
from suite.log.finding import RecordError
from suite.log.safe import safe

FORMAT = "suite-bundle/1"
MANIFEST = "manifest.json"
TOOLS = {"sif": "apptainer", "sqsh": "enroot"}  # the program that reads an image in this file format
_MAX_MANIFEST = 4 << 20
_MAX_DEPTH = 8

_HEX = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_DIGEST = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_TEXT = {"type": "string", "maxLength": 1000}
_NAME = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"}
# Every part of a path begins with a letter or digit: no "..", nothing hidden, nothing absolute.
_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._+!%-]{0,200}"
_PATH = rf"^(image|wheels|data|rules)(/{_SEGMENT}){{1,5}}$"


def _closed(**fields: Any) -> dict[str, Any]:
    """The schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_IMAGE = _closed(
    format={"enum": ["oci", *TOOLS]},
    file={"type": "string", "pattern": _PATH},
    base=_NAME,
    tag={"type": "string", "pattern": "^[a-z0-9][a-z0-9._/-]{0,200}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"},
    config_digest=_or_null(_DIGEST),
    diff_ids=_or_null({"type": "array", "items": _DIGEST, "minItems": 1, "maxItems": 500}),
)
SCHEMA = _closed(
    format={"const": FORMAT},
    suite_version=_TEXT,
    code_digest=_HEX,
    workload=_NAME,
    framework=_NAME,
    accelerator=_NAME,
    platform={"enum": ["linux/amd64", "linux/arm64"]},
    rules=_NAME,
    image=_or_null(_IMAGE),
    files={
        "type": "object",
        "propertyNames": {"pattern": _PATH},
        "additionalProperties": _closed(bytes={"type": "integer", "minimum": 0}, sha256=_HEX),
        "maxProperties": 5000,
    },
    elsewhere={
        "type": "array",
        "items": _closed(name=_TEXT, address=_or_null(_TEXT), reason=_TEXT),
        "maxItems": 100,
    },
)


class BundleProblem(Exception):
    """A bundle that cannot be used; the message names expected, found, where, and the fix."""


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the bundle in ``path``, validated by its schema; BundleProblem otherwise."""
    try:
        manifest = orjson.loads(read_bytes(path, MANIFEST, _MAX_MANIFEST))
    except orjson.JSONDecodeError as error:
        raise mismatch(path, MANIFEST, "JSON", str(error)) from error
    for fault in jsonschema_rs.validator_for(SCHEMA).iter_errors(manifest):
        where = ".".join(map(str, fault.instance_path)) or "manifest"
        raise mismatch(path, MANIFEST, f"the format {FORMAT}", f"{where}: {fault.message}")
    checked: dict[str, Any] = manifest
    return checked


def read_bytes(path: Path, name: str, limit: int) -> bytes:
    """The bytes of the file ``name`` in the folder ``path``; BundleProblem over ``limit``, or for a link."""
    try:
        return read_in(path, name, limit)
    except OSError as error:
        raise BundleProblem(
            f"bundle {path}: expected a folder written by `make fetch` ({os.strerror(error.errno or 0)})"
        ) from error
    except RecordError as error:
        defect = error.defects[0]
        raise mismatch(path, name, defect.expected, defect.found) from error


def open_file(path: Path, name: str) -> io.BufferedReader:
    """The file ``name`` of the bundle ``path``, to read; OSError where it is a link."""
    return os.fdopen(os.open(path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def verify(path: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """BundleProblem unless ``path`` contains exactly the files listed in ``files``, with their digests.

    ``files``: the manifest's, by name. Each file is read once, in pieces.
    """
    there = set(present(path))
    for names, expected, found in (
        (there - {*files, MANIFEST}, "only files that the manifest lists", "another file"),
        (set(files) - there, "the file that the manifest lists", "no such file"),
    ):
        if names:
            raise mismatch(path, min(names), expected, f"{found} ({len(names)} in all)")
    for name, listed in sorted(files.items()):
        _same_bytes(path, name, listed["bytes"], listed["sha256"])


def _same_bytes(path: Path, name: str, size: int, sha256: str) -> None:
    with open_file(path, name) as file:
        length = os.fstat(file.fileno()).st_size
        if length != size:
            raise mismatch(path, name, f"{size} bytes", f"{length}")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise mismatch(path, name, f"SHA-256 {sha256}", digest)


def present(root: Path, inside: str = "") -> Iterator[str]:
    """The names of the files under ``root``; no link is followed. BundleProblem for anything else there."""
    with os.scandir(root / inside) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            name = f"{inside}{entry.name}"
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and name.count("/") < _MAX_DEPTH:
                yield from present(root, f"{name}/")
            elif stat.S_ISREG(mode):
                yield name
            else:
                raise mismatch(
                    root, name, "a file, or a folder of them", "a link, pipe, device or deep nesting"
                )


def mismatch(path: Path, where: str, expected: str, found: str) -> BundleProblem:
    """The error about the file ``where`` of the bundle ``path``; ``found`` may be hostile text."""
    return BundleProblem(
        f"bundle {path}: {safe(where)}: expected {expected}, found {safe(found, 200)}: copy the bundle "
        "again, or make another one with `make fetch`"
    )
