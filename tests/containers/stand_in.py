"""A small container image in place of NVIDIA's: Debian with Python, by digest in a local image registry.

``python -m tests.containers.stand_in`` makes it (debootstrap, as root), pushes it, reads its digests back
from the image registry and writes them to ``rules/practice/images/<framework>-stand-in.json``; a second call
takes a second. Debian's files change with its point releases, so these entries are generated and not in git.
``--stop`` ends the image registry, and the engine if the tests started it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from suite import rules
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.images.lock import Base, PlatformImage, read_folder, write
from suite.containers.images.resolve import resolve
from tests.containers import engine, image_registry

FOLDER = image_registry.FOLDER
NAME = "suite/stand-in"
REPOSITORY = f"{image_registry.ADDRESS}/{NAME}"
TAG = "bookworm"
PYTHON = "3.11"
PACKAGES = "python3,python3-pip,libgomp1,libquadmath0"  # libraries that the frameworks' wheels lack
SUITE = "bookworm"
# Files of this machine that debootstrap copies, and files that only apt needs.
LEFTOVERS = ("var/cache/apt", "var/lib/apt/lists", "var/log", "var/cache/debconf")
HOST_FILES = ("etc/hostname", "etc/resolv.conf")
REQUIREMENTS = {
    "pytorch": ("requirements-cpu.txt", "2.13.0+cpu"),
    "tensorflow": ("requirements-stand-in.txt", "2.17.1"),
    "mxnet": ("requirements-cpu.txt", "1.9.1"),
    "jax": ("requirements-cpu.txt", "0.10.2"),
}
PLATFORM = "linux/amd64"


def ensure(docker: DockerEngine, folder: Path | None = None) -> dict[str, Base]:
    """The locked stand-in images by framework; makes image, image registry and entries if they are missing.

    ``folder``: the folder of the entries, by default rules/practice/images.
    """
    folder = folder or rules.load("practice").images_folder
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # tests run side by side
        image_registry.start()
        return _ensure(docker, folder)


def _ensure(docker: DockerEngine, folder: Path) -> dict[str, Base]:
    known = _known(folder)
    if known and all(_pulled(docker, base) for base in known.values()):
        return known
    image_registry.push(NAME, TAG, [tree()], config())
    for framework in REQUIREMENTS:
        write(folder, resolve(_entry(framework)))
    found = _known(folder)
    for base in found.values():
        _run(["docker", "pull", "--quiet", base.reference])
        _run(["docker", "tag", base.reference, base.tagged])
    return found


def _known(folder: Path) -> dict[str, Base]:
    found = {base.framework: base for base in read_folder(folder).values() if base.repository == REPOSITORY}
    return found if set(found) == set(REQUIREMENTS) else {}


def _pulled(docker: DockerEngine, base: Base) -> bool:
    """Whether the engine and the image registry have the image that the entry pins."""
    pulled = docker.image(f"{base.repository}@{base.digest}")
    if pulled is None or pulled.diff_ids != base.platform(PLATFORM).diff_ids:
        return False
    return resolve(base) == base


def tree() -> Path:
    """The tar file of the root file system, made once."""
    packed = FOLDER / "root.tar"
    if packed.is_file():
        return packed
    program = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        raise RuntimeError("the stand-in image is made by debootstrap, as root: apt-get install debootstrap")
    FOLDER.mkdir(parents=True, exist_ok=True)
    root = FOLDER / "root"
    shutil.rmtree(root, ignore_errors=True)
    _run([program, "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), *_mirror()])
    for name in LEFTOVERS:
        for path in (root / name).iterdir() if (root / name).is_dir() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in HOST_FILES:
        (root / name).write_text("")
        (root / name).chmod(0o644)
    partial = FOLDER / "root.tar.partial"
    _run(["tar", "--numeric-owner", "--one-file-system", "-C", str(root), "-cf", str(partial), "."])
    partial.rename(packed)
    shutil.rmtree(root)
    return packed


def _mirror() -> list[str]:
    """The mirror from which this machine's apt takes the release; empty for debootstrap's default."""
    wanted = (f"Codename: {SUITE}", "Created-By: Packages")
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return sorted(set(found.stdout.split()))[:1]


def config() -> dict[str, Any]:
    """The configuration of the image, without its layers."""
    system, _, architecture = PLATFORM.partition("/")
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"os": system, "architecture": architecture, "config": {"Env": [path], "Cmd": ["python3"]}}


def _entry(framework: str) -> Base:
    requirements, version = REQUIREMENTS[framework]
    contains = dict.fromkeys(("framework", "python", "os", "cuda", "cudnn", "nccl"))
    return Base(
        name=f"{framework}-stand-in",
        framework=framework,
        current=True,
        status="unresolved",
        repository=REPOSITORY,
        tag=TAG,
        index_digest=None,
        digest_of_unknown_kind=None,
        platforms={PLATFORM: PlatformImage()},
        provenance="made by tests/containers/stand_in.py",
        resolved_at=None,
        resolver=None,
        requirements=requirements,
        contains={**contains, "framework": version, "python": PYTHON, "os": "Debian 12"},
        architectures=None,
        minimum_driver=None,
        compat_driver=None,
        unpacked_bytes=None,
        note="Stands in for NVIDIA's image in tests: a CPU build on a small Debian.",
    )


def _run(command: list[str]) -> str:
    """Run ``command`` and return its output; RuntimeError with the end of its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise RuntimeError(f"{' '.join(command[:3])} exited {done.returncode}: {output}")
    return done.stdout.strip()


def main() -> int:
    """Make the stand-in images, or end their image registry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--stop", action="store_true", help="end the image registry and engine of the tests")
    if parser.parse_args().stop:
        print("ended the image registry" if image_registry.stop() else "the tests started no image registry")
        print("ended the engine" if engine.stop() else "the tests started no engine")
        return 0
    for framework, base in ensure(engine.ensure_engine()).items():
        print(framework, base.reference)
    return 0


if __name__ == "__main__":
    sys.exit(main())
