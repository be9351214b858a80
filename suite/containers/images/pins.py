"""The pins in ``containers/<framework>/Dockerfile``: each names the lock's current base by digest."""

from __future__ import annotations

import re
from pathlib import Path

from suite.containers.engines.native import PROJECT
from suite.containers.images.lock import Base, LockProblem, replace_text

_PIN = re.compile(r"^ARG BASE=(.*)$", re.MULTILINE)


def dockerfile(base: Base, root: Path = PROJECT) -> Path:
    """The path of the Dockerfile of the base's framework under ``root``."""
    return root / "containers" / base.framework / "Dockerfile"


def difference(base: Base, root: Path = PROJECT) -> str | None:
    """How the Dockerfile's ``ARG BASE=`` differs from the lock, as text; None where it is equal.

    Raises LockProblem for a Dockerfile without exactly one such line.
    """
    path = dockerfile(base, root)
    found = _pinned(path, path.read_text(encoding="utf-8"))
    if found == base.reference:
        return None
    return f"{path.relative_to(root)}: the lock has {base.reference}, ARG BASE= has {found}"


def rewrite(base: Base, root: Path = PROJECT) -> Path | None:
    """Set ``ARG BASE=`` to the lock's reference; returns the file's path, None where it was equal already.

    Raises LockProblem for a Dockerfile without exactly one such line.
    """
    path = dockerfile(base, root)
    text = path.read_text(encoding="utf-8")
    if _pinned(path, text) == base.reference:
        return None
    replace_text(path, _PIN.sub(lambda _: f"ARG BASE={base.reference}", text))
    return path


def _pinned(path: Path, text: str) -> str:
    pins: list[str] = _PIN.findall(text)
    if len(pins) != 1:
        raise LockProblem(f"{path}: expected one line `ARG BASE=…`, found {len(pins)}; restore the line")
    return pins[0].strip()
