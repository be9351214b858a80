"""Runs inside the build of a pair's image and makes one layer in /made: ``requirements`` or ``code``.

Two builds from the same context give the same bytes. Layers record times, modes and bytecode, so this script
fixes all three: every file and folder of the layer gets one fixed time, modes do not depend on the umask of
the user who staged the context, and bytecode is compiled once, in name order, as unchecked: under a read-only
root it can neither be written later nor become stale.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MADE = Path("/made")  # copied onto the base by the Dockerfile
EPOCH_S = 315_532_800  # 1980-01-01, the first time of a zip archive; the Dockerfiles have the same number
CONTEXT = Path(__file__).resolve().parent
PROBE = """
import importlib.metadata, importlib.util, sys
found = importlib.util.find_spec(sys.argv[1])
try:
    version = importlib.metadata.version(sys.argv[1])
except importlib.metadata.PackageNotFoundError:
    version = None
print(found and found.origin, version)
"""


def requirements(root: Path, module: str) -> None:
    """Install the lock into ``root``/opt/suite/site from the wheels; the base's framework must not change."""
    site = root / "opt/suite/site"
    site.mkdir(parents=True)
    if _packages(CONTEXT / "requirements.txt"):
        before = _framework(module, None)
        _install(site)
        after = _framework(module, site)
        if before not in ("None None", after):
            raise SystemExit(
                f"the requirements replaced {module} of the base image: expected {before}, found {after}; "
                f"take {module} out of them"
            )
    _normalise(root)


def code(root: Path) -> None:
    """Put the code and the label file into ``root``; also make the mount points of the runtimes."""
    shutil.copytree(CONTEXT / "suite", root / "opt/suite/code/suite")
    for name in ("etc", "data", "scratch"):
        (root / name).mkdir()
    shutil.copyfile(CONTEXT / "suite-image.json", root / "etc/suite-image.json")
    _normalise(root)


def _packages(lock: Path) -> bool:
    lines = (line.strip() for line in lock.read_text().splitlines())
    return any(line and not line.startswith("#") for line in lines)


def _install(site: Path) -> None:
    # PIP_CONSTRAINT of NVIDIA's images applies: a contradiction must fail here, not at run time.
    command = [sys.executable, "-B", "-m", "pip", "install", "--target", str(site), "--no-compile"]
    command += ["--require-hashes", "--no-deps", "--no-index", "--find-links", str(CONTEXT / "wheels")]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    command += ["-r", str(CONTEXT / "requirements.txt")]
    # On the same file system, so that pip can rename what it has unpacked.
    variables = {"TMPDIR": str(site.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env={**os.environ, **variables}, check=False)
    if done.returncode:  # a traceback would hide pip's message
        raise SystemExit(f"pip exited {done.returncode}: the requirements were not installed")


def _framework(module: str, site: Path | None) -> str:
    """Where ``module`` is imported from and its version, "None None" without it; does not import it."""
    path = {} if site is None else {"PYTHONPATH": str(site)}
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **path}
    command = [sys.executable, "-B", "-s", "-c", PROBE, module]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def _normalise(root: Path) -> None:
    """Compile the modules under ``root`` with their final paths, and fix modes and times of everything.

    The tests of packages, a fifth of all modules, stay uncompiled: no worker imports them.
    """
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for path in sorted(root.rglob("*.py")):
        if "tests" in path.relative_to(root).parts:
            continue
        # Packages ship templates and old syntax as .py; files that do not compile are never imported.
        final_path = f"/{path.relative_to(root)}"
        py_compile.compile(str(path), dfile=final_path, invalidation_mode=mode, quiet=2)
    for path in _upwards(root):
        _normalise_path(path)


def _upwards(folder: Path) -> Iterator[Path]:
    """Everything under ``folder`` and itself, contents first, because writing changes a folder's time."""
    for top, folders, files in os.walk(folder, topdown=False):
        yield from (Path(top, name) for name in files)
        yield from (path for path in (Path(top, name) for name in folders) if path.is_symlink())
        yield Path(top)


def _normalise_path(path: Path) -> None:
    if not path.is_symlink():
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)
    os.utime(path, (EPOCH_S, EPOCH_S), follow_symlinks=False)


if __name__ == "__main__":
    os.umask(0o022)
    if sys.argv[1] == "requirements":
        requirements(MADE, sys.argv[2])
    else:
        code(MADE)
