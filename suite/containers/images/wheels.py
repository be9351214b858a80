"""The wheels of a lock, fetched by the host's pip before a build: the build itself has no network.

So only this module uses the proxies, passwords and certificates of the host's pip, and no layer can contain
them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from suite.environments.environments import (
    LARGE_BYTES,
    PYTHON,
    ROOT,
    Progress,
    extra_links,
)
from suite.environments.errors import EnvironmentMissing, LargeDownload, NoWheel, explain

# The manylinux tags of wheels for today's glibc, newest first: pip needs every one of them as an option.
_GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
_OLDER = ("manylinux_2_12", "manylinux2010", "manylinux_2_5", "manylinux1")
_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


def packages(lock: Path) -> int:
    """How many packages ``lock`` installs; may be zero."""
    return sum(
        1 for line in lock.read_text().splitlines() if line.strip() and line[0] not in "# \t" and "==" in line
    )


def fetch(
    lock: Path, python: str | None, *, platform: str, cache: Path, allow_large: bool, report: Progress
) -> Path:
    """The folder under ``cache``/wheels with every wheel of ``lock``, created where it is missing.

    ``python``: the version in the image, "3.12.3". pip accepts only the files that the lock names by hash.

    Raises:
        EnvironmentMissing: a wheel that no source has, a file with another hash, or no network.
        LargeDownload: over 1 GB and ``allow_large`` is false.
    """
    tags = _tags(lock, python, platform)
    digest = hashlib.sha256("\n".join([lock.read_text(), *tags]).encode()).hexdigest()
    folder = cache / "wheels" / digest[:16]
    if folder.is_dir():
        return folder
    name = f"{lock.parent.name}-{lock.stem.removeprefix('requirements-')}"
    _refuse_large(name, allow_large)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
    try:
        report(f"fetching the wheels of {name}: {packages(lock)} packages")
        if packages(lock):
            _download(lock, name, scratch, tags, report)
        scratch.chmod(0o755)
        if not folder.is_dir():  # else another process has fetched the same files
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _download(lock: Path, name: str, target: Path, tags: list[str], report: Progress) -> None:
    try:
        pip_download(lock, name, target, *tags)
    except NoWheel:
        links = extra_links(name)
        if links is None:
            raise
        report(f"pip's sources do not have it, trying {links}")
        pip_download(lock, name, target, *tags, "--retries=1", "--timeout=20", "--find-links", links)


def pip_download(lock: Path, name: str, target: Path, *options: str) -> None:
    """Download the wheels of ``lock`` to ``target``; raises as ``suite.environments.errors.explain``."""
    command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    done = subprocess.run(
        [*command, "--dest", str(target), *options, "-r", str(lock)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PIP_CONSTRAINT": ""},
    )
    if done.returncode:
        raise explain(name, done.stdout.splitlines()[-200:])


def _tags(lock: Path, python: str | None, platform: str) -> list[str]:
    """Options of pip for the platform of the wheels; none for the Python and machine of this process."""
    if not packages(lock):
        return []
    if platform not in _MACHINES:
        raise EnvironmentMissing(
            f"wheels are known for {' and '.join(_MACHINES)}, found the platform {platform}"
        )
    if python is None:
        raise EnvironmentMissing(
            f"{lock.name} needs wheels for the Python of the base image, and the lock of images does not "
            "have its version: add contains.python to the entry"
        )
    version = ".".join(python.split(".")[:2])
    machine = _MACHINES[platform]
    if (version, machine) == (".".join(map(str, PYTHON)), os.uname().machine):
        return []
    tags = [f"--platform={tag}_{machine}" for tag in (*_GLIBC, *_OLDER)]
    return [f"--python-version={version}", "--implementation=cp", *tags, f"--platform=linux_{machine}"]


def _refuse_large(name: str, allow_large: bool) -> None:
    sizes = json.loads((ROOT / "containers/sizes.json").read_text()).get(name)
    if sizes is None or sizes["download_bytes"] <= LARGE_BYTES or allow_large:
        return
    raise LargeDownload(f"the wheels of {name}", sizes["download_bytes"], sizes["unpacked_bytes"])
