"""The code in the container image of a pair: the modules that the worker may import, and their digest."""

from __future__ import annotations

from pathlib import Path

from suite import rules
from suite.containers.engines.native import PROJECT
from suite.log.canonical import sha256_hex

_FOLDERS = ("contract", "common", "worker", "frameworks", "workloads")
_PARTS = ("suite/__init__.py", *(f"suite/{folder}/**/*.py" for folder in _FOLDERS))


def inside_files(root: Path = PROJECT) -> list[Path]:
    """The files of the project at ``root`` that go into an image, in the order of their names."""
    found = {path for part in _PARTS for path in root.glob(part) if path.is_file()}
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def code_digest(root: Path = PROJECT) -> str:
    """SHA-256 (64 hex) over a line "<sha256>  <name>" for each file of :func:`inside_files`, in name order.

    Not the header's ``code_digest``, which is over the whole project: an image does not change with the
    host's code.
    """
    files = {path.relative_to(root).as_posix(): sha256_hex(path.read_bytes()) for path in inside_files(root)}
    return rules.digest_of(files)


if __name__ == "__main__":
    print(code_digest())
