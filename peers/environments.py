"""Where the two sides run: the suite's locked environments, and beside them what only peers need.

A plain script has the framework of the suite's own environment, the same build. torchvision lies in a folder
of its own, which is on the search path of plain scripts alone; gensim has an environment of its own.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from suite.environments import environments

LOCK = environments.ROOT / "requirements" / "peers-torchvision.txt"

Progress = Callable[[str], None]


def gensim(root: Path, say: Progress) -> Path:
    """The interpreter of gensim's environment, made first where it is missing."""
    return environments.ensure_tools("peers", say, root=root)


def framework(name: str, say: Progress) -> Path:
    """The interpreter of the suite's environment of a framework on the CPU."""
    return environments.ensure(name, "cpu", progress=say)


def torchvision(root: Path, python: Path, say: Progress) -> Path:
    """The folder with torchvision, filled first by ``python``'s pip where it is missing: 8 MB.

    Raises EnvironmentMissing with pip's last line.
    """
    folder = torchvision_folder(root)
    if folder.is_dir():
        return folder
    say("fetching torchvision for the peers: 8 MB")
    unfinished = folder.with_suffix(".partial")
    command = [str(python), "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += [
        "--disable-pip-version-check",
        "--quiet",
        "--upgrade",
        "--target",
        str(unfinished),
        "-r",
        str(LOCK),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise environments.EnvironmentMissing(f"torchvision for the peers: pip says: {last}")
    unfinished.rename(folder)
    return folder


def torchvision_folder(root: Path) -> Path:
    """Where torchvision of this lock is or will be."""
    return root / f"peers-torchvision-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:8]}"


def search_path(folders: list[Path]) -> str:
    """PYTHONPATH of an arm: the project, then ``folders``."""
    return ":".join(map(str, [environments.ROOT, *folders]))
