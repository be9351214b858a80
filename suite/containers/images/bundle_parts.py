"""Large files of a bundle in parts, for media and transfers that limit the size of a file.

``parts.sha256`` lists the parts as sha256sum does, so that a person needs no program of ours: check them with
``sha256sum -c parts.sha256``, join them with ``cat NAME.part* > NAME``. The manifest describes the whole
files. The list and the parts are untrusted input, as the rest of a bundle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.containers.images.bundle_manifest import (
    MANIFEST,
    BundleProblem,
    mismatch,
    open_file,
    present,
    read_bytes,
)

LIST = "parts.sha256"
MOST = 10_000  # parts of a file: four digits, so that their names sort in their order
_MAX_LIST = 16 << 20
_LINE = re.compile(r"([0-9a-f]{64})  (.{1,1000})\.part([0-9]{4})")
_PIECE = 1 << 22


def split(folder: Path, names: Iterable[str], size: int) -> None:
    """Replace each file of ``names`` in ``folder`` that is larger than ``size`` bytes by its parts.

    Raises BundleProblem where a file would have more than 10,000 parts.
    """
    lines: list[str] = []
    for name in sorted(names):
        length = (folder / name).stat().st_size
        if length <= size:
            continue
        if length > MOST * size:
            raise BundleProblem(
                f"part_size: expected at least {-(-length // MOST)} bytes, so that {name} has at most {MOST} "
                f"parts, found {size}: give a larger PART_SIZE"
            )
        with (folder / name).open("rb") as whole:
            for number in range(-(-length // size)):
                part = f"{name}.part{number:04d}"
                lines.append(f"{_copy(whole, folder / part, size)}  {part}\n")
        (folder / name).unlink()
    if lines:
        (folder / LIST).write_text("".join(lines), "utf-8")


def join(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Join the parts in the bundle ``folder``, if it has any, and remove them.

    ``files``: the manifest's, by name. Every part is compared with ``parts.sha256``, every joined file with
    the manifest. An interrupted join continues. Raises BundleProblem for a part that differs, is missing or
    is not listed, and OSError where the folder cannot be written.
    """
    if not (folder / LIST).exists():
        return
    listed = _listed(folder, files)
    there = set(present(folder))
    parts = {part for found in listed.values() for part, _ in found}
    if extra := there - {*files, *parts, MANIFEST, LIST, *map(_joining, listed)}:
        raise mismatch(folder, min(extra), f"only files that {MANIFEST} or {LIST} lists", "another file")
    for name, found in listed.items():
        if name not in there:
            if missing := [part for part, _ in found if part not in there]:
                raise mismatch(folder, missing[0], f"the part that {LIST} lists", "no such file")
            _join(folder, name, found, files[name])
        for left in (_joining(name), *(part for part, _ in found)):
            (folder / left).unlink(missing_ok=True)
    (folder / LIST).unlink()


def _listed(folder: Path, files: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """The parts of each file with their SHA-256, in order; BundleProblem unless the list is well-formed."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in read_bytes(folder, LIST, _MAX_LIST).decode(errors="replace").splitlines():
        match = _LINE.fullmatch(line)
        parts = found.setdefault(match[2], []) if match and match[2] in files else None
        if match is None or parts is None or int(match[3]) != len(parts):
            expected = f"lines `<SHA-256>  <file of {MANIFEST}>.part<number>`, with the numbers in order"
            raise mismatch(folder, LIST, expected, line)
        parts.append((f"{match[2]}.part{match[3]}", match[1]))
    return found


def _join(folder: Path, name: str, parts: Sequence[tuple[str, str]], whole: Mapping[str, Any]) -> None:
    """Write the file ``name``; it appears by one rename, after its digest is verified."""
    target, digest, length = folder / _joining(name), hashlib.sha256(), 0
    with target.open("wb") as out:
        for part, expected in parts:
            of_part = hashlib.sha256()
            with open_file(folder, part) as file:
                while piece := file.read(_PIECE):
                    out.write(piece)
                    of_part.update(piece)
                    digest.update(piece)
                    length += len(piece)
            if of_part.hexdigest() != expected:
                raise mismatch(folder, part, f"SHA-256 {expected} of {LIST}", of_part.hexdigest())
    if (length, digest.hexdigest()) != (whole["bytes"], whole["sha256"]):
        expected = f"parts of {whole['bytes']} bytes with the SHA-256 {whole['sha256']}"
        raise mismatch(folder, name, expected, f"{length} bytes, {digest.hexdigest()}")
    target.rename(folder / name)


def _joining(name: str) -> str:
    return f"{name}.joining"


def _copy(source: Any, target: Path, size: int) -> str:
    """Copy the next ``size`` bytes of ``source`` to the new file ``target``; their SHA-256."""
    digest, left = hashlib.sha256(), size
    with target.open("xb") as out:
        while left and (piece := source.read(min(left, _PIECE))):
            out.write(piece)
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()
