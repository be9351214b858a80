"""The build context: a folder with the lock and its wheels, and one with the code and its label."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from suite.containers.engines.native import PROJECT
from suite.containers.images.inside import inside_files
from suite.log.canonical import sha256_hex

BAKE = PROJECT / "containers/bake.py"


def recipe_digest(dockerfile: Path) -> str:
    """SHA-256 (64 hex) of the Dockerfile and bake.py, on which layers depend beside code and requirements."""
    return sha256_hex(dockerfile.read_bytes() + BAKE.read_bytes())


def stage(folder: Path, lock: Path, wheels: Path, label: Mapping[str, str], root: Path = PROJECT) -> None:
    """Fill the empty ``folder`` with ``requirements/`` and ``code/``, and nothing else of the project.

    Each holds the inputs of one layer, so that the layer of the requirements stays cached when code changes.
    """
    requirements, code = folder / "requirements", folder / "code"
    (requirements / "wheels").mkdir(parents=True)
    shutil.copyfile(BAKE, requirements / "bake.py")
    shutil.copyfile(lock, requirements / "requirements.txt")
    for wheel in sorted(wheels.iterdir()):
        _link(wheel, requirements / "wheels" / wheel.name)
    for source in inside_files(root):
        target = code / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    shutil.copyfile(BAKE, code / "bake.py")
    (code / "suite-image.json").write_text(label_file(label))


def label_file(label: Mapping[str, str]) -> str:
    """The text of /etc/suite-image.json."""
    return json.dumps(label, indent=2, sort_keys=True) + "\n"


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
