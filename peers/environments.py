"""The environments of both sides: the suite's locked ones, and additional ones for peers.

A plain script uses the framework build of the suite's environment. torchvision is in a separate folder on the
search path of plain scripts only; gensim has a separate environment.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from suite.environments import environments

LOCK = environments.ROOT / "requirements" / "peers-torchvision.txt"

Progress = Callable[[str], None]


def gensim(root: Path, report: Progress) -> Path:
    """The interpreter of gensim's environment, which is created if missing."""
    return environments.ensure_tools("peers", report, root=root)


def framework(name: str, report: Progress) -> Path:
    """The interpreter of the suite's environment of a framework on the CPU."""
    return environments.ensure(name, "cpu", progress=report)


def torchvision(root: Path, python: Path, report: Progress) -> Path:
    """The folder with torchvision (8 MB), installed for ``python`` if missing.

    Raises EnvironmentMissing with pip's last line.
    """
    folder = torchvision_folder(root)
    if folder.is_dir():
        return folder
    report("fetching torchvision for the peers: 8 MB")
    unfinished = folder.with_suffix(".partial")
    command = [*environments.pip_for(python), "install", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--quiet", "--upgrade"]
    command += ["--target", str(unfinished), "-r", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise environments.EnvironmentMissing(f"torchvision for the peers: pip reports: {last}")
    unfinished.rename(folder)
    return folder


def torchvision_folder(root: Path) -> Path:
    """The folder for torchvision of this lock."""
    return root / f"peers-torchvision-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:8]}"


def search_path(folders: list[Path]) -> str:
    """PYTHONPATH of a process: the project, then ``folders``."""
    return ":".join(map(str, [environments.ROOT, *folders]))
