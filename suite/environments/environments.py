"""The frameworks' environments: one venv per framework and accelerator, made at its first use.

``ensure("pytorch", "cpu")`` returns the interpreter of ``.envs/pytorch-cpu-<first 8 of the lock's digest>``.
The lock (``containers/<framework>/requirements-<accelerator>.txt``) pins every file by hash, so the index or
mirror that pip is configured with makes no difference.

A venv holds absolute paths, so it is built under its final name; it is valid once its stamp exists, which is
written last and by rename. An interrupted build has no stamp and is repeated; a file lock excludes a second
builder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from suite.contract.traits import framework_names, traits_of
from suite.environments.errors import (
    ASSUMED_BYTES_PER_S,
    ASSUMED_UNPACKED,
    ASSUMED_UNPACKED_BYTES_PER_S,
    EnvironmentMissing,
    LargeDownload,
    NoWheel,
    explain,
)

__all__ = [
    "EnvironmentMissing",
    "EnvironmentPlan",
    "LargeDownload",
    "accelerator",
    "accelerators",
    "ensure",
    "ensure_tools",
    "find_python",
    "frameworks",
    "pip_for",
    "plan",
    "tools_plan",
]

ROOT = Path(__file__).resolve().parents[2]
LARGE_BYTES = 1_000_000_000
STAMP = "suite-environment.json"
PYTHON = (3, 11)
ACCELERATORS = ("cpu", "cuda")  # the other locks are for images (suite/containers/images/wheels.py)

# Environments of tools, and a module of each.
TOOLS = {"data": "sacremoses", "peers": "gensim", "dali": "nvidia.dali", "triton": "triton"}
ON_DEMAND = ("dali",)  # those that are made only when a run needs them

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """One environment: its folder, whether it is ready, and the cost of making it."""

    name: str  # <framework>-<accelerator>
    lock: Path
    digest: str  # sha256 of the lock file
    folder: Path
    ready: bool
    download_bytes: int
    disk_bytes: int
    packages: int

    @property
    def python(self) -> Path:
        """The interpreter of the finished environment."""
        return self.folder / "bin" / "python"

    @property
    def packages_folder(self) -> Path:
        """The folder of its packages, ``site-packages``."""
        return self.folder / "lib" / f"python{PYTHON[0]}.{PYTHON[1]}" / "site-packages"

    @property
    def seconds(self) -> int:
        """Estimated seconds to make it: download and unpacking at assumed rates."""
        return round(
            self.download_bytes / ASSUMED_BYTES_PER_S + self.disk_bytes / ASSUMED_UNPACKED_BYTES_PER_S
        )


def accelerator() -> str:
    """``cuda`` where the driver finds an NVIDIA GPU that is visible to this process, else ``cpu``."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in {"", "-1"}:
        return "cpu"
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return "cuda" if pynvml.nvmlDeviceGetCount() > 0 else "cpu"
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # noqa: BLE001  (no library, no driver, no permission: all mean no usable GPU)
        return "cpu"


def frameworks() -> tuple[str, ...]:
    """Frameworks that have at least one lock."""
    return tuple(sorted(path.parent.name for path in ROOT.glob("containers/*/requirements-cpu.txt")))


def extra_links(name: str) -> str | None:
    """A page of wheels for the lock ``name`` ("pytorch-cpu") that pip's sources may lack, or None."""
    framework, _, device = name.partition("-")
    return traits_of(framework).links.get(device) if framework in framework_names() else None


def _import_name(framework: str) -> str:
    return traits_of(framework).import_name if framework in framework_names() else framework


def accelerators(framework: str) -> tuple[str, ...]:
    """The accelerators, of ``cpu`` and ``cuda``, that ``framework`` has a lock for."""
    folder = ROOT / "containers" / framework
    return tuple(name for name in ACCELERATORS if (folder / f"requirements-{name}.txt").is_file())


def plan(framework: str, accel: str) -> EnvironmentPlan:
    """The environment that ``ensure`` uses or makes. Raises :class:`EnvironmentMissing` without a lock."""
    name = f"{framework}-{accel}"
    lock = ROOT / "containers" / framework / f"requirements-{accel}.txt"
    if not lock.is_file():
        locked = accelerators(framework)
        if not locked:
            known = ", ".join(frameworks())
            raise EnvironmentMissing(f"there is no locked build of {framework}: choose one of {known}")
        raise EnvironmentMissing(
            f"there is no locked {accel} build of {framework}, only {', '.join(locked)}: run it on the CPU, "
            "or give a custom interpreter or container image"
        )
    return _plan_of_lock(name, lock)


def tools_plan(name: str, *, root: Path | None = None) -> EnvironmentPlan:
    """The environment of tools that ``requirements/<name>.txt`` locks; it is small and has no framework."""
    return _plan_of_lock(name, ROOT / "requirements" / f"{name}.txt", root)


def _plan_of_lock(name: str, lock: Path, root: Path | None = None) -> EnvironmentPlan:
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    folder = (root or ROOT / ".envs") / f"{name}-{digest[:8]}"
    sizes = json.loads((ROOT / "containers" / "sizes.json").read_text())[name]
    download = sizes["download_bytes"]
    disk = sizes["unpacked_bytes"] or round(download * ASSUMED_UNPACKED)
    return EnvironmentPlan(
        name, lock, digest, folder, _ready(folder, digest), download, disk, sizes["packages"]
    )


def ensure(
    framework: str,
    accel: str,
    *,
    allow_large: bool = False,
    progress: Progress | None = None,
    wheels: Path | None = None,
) -> Path:
    """The interpreter of the environment for ``framework`` on ``accel`` (``cpu`` | ``cuda``).

    Makes it first where it is missing, and calls ``progress`` with one line of text at a time. ``wheels``: a
    folder with all of its wheels; then pip fetches nothing.

    Raises:
        EnvironmentMissing: no Python 3.11, venv, wheel, network or lock; the message names the fix.
        LargeDownload: over 1 GB and ``allow_large`` is false.
        OSError: no space (ENOSPC) or a folder that cannot be written.
    """
    wanted = plan(framework, accel)
    if wanted.ready:
        return wanted.python
    if wanted.download_bytes > LARGE_BYTES and not allow_large and wheels is None:
        command = f"`make environments FRAMEWORK={framework} FETCH=1`"
        name = f"the environment {wanted.name}"
        raise LargeDownload(name, wanted.download_bytes, wanted.disk_bytes, command)
    return _make(wanted, _import_name(framework), progress, wheels)


def ensure_tools(name: str, progress: Progress | None = None, *, root: Path | None = None) -> Path:
    """The interpreter of the tools ``name``, made first where it is missing; raises as :func:`ensure`."""
    wanted = tools_plan(name, root=root)
    return wanted.python if wanted.ready else _make(wanted, TOOLS[name], progress, None)


def _make(wanted: EnvironmentPlan, module: str, progress: Progress | None, wheels: Path | None) -> Path:
    report = progress or (lambda line: None)
    wanted.folder.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(wanted.folder.with_suffix(".lock"), report):
        if not _ready(wanted.folder, wanted.digest):  # another process may have made it meanwhile
            _build(wanted, module, report, wheels)
    return wanted.python


def find_python() -> Path:
    """A Python 3.11 that can make virtual environments. Raises :class:`EnvironmentMissing`."""
    tried: list[str] = []
    for candidate in (getattr(sys, "_base_executable", sys.executable), "python3.11", "python3"):
        path = shutil.which(candidate) if candidate else None
        if path is None or path in tried:
            continue
        tried.append(path)
        code = "import sys; print(*sys.version_info[:2]); import venv, ensurepip"
        answer = subprocess.run([path, "-I", "-c", code], capture_output=True, text=True, check=False)
        if answer.stdout.split() != [str(part) for part in PYTHON]:
            continue
        if answer.returncode == 0:
            return Path(path)
        raise EnvironmentMissing(
            f"{Path(path).name} has no venv module (a separate package on Debian and Ubuntu): "
            "sudo apt-get install python3.11-venv"
        )
    raise EnvironmentMissing(
        "Python 3.11 was not found on PATH, and the frameworks' locks are for it: "
        "sudo apt-get install python3.11 python3.11-venv (or pyenv install 3.11, or uv python install 3.11)"
    )


def _ready(folder: Path, digest: str) -> bool:
    try:
        stamp = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(stamp, dict) and stamp.get("lock") == digest and (folder / "bin" / "python").exists()


@contextlib.contextmanager
def _exclusive(path: Path, report: Progress) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that is making {path.stem}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(wanted: EnvironmentPlan, module: str, report: Progress, wheels: Path | None) -> None:
    base = find_python()
    free = shutil.disk_usage(wanted.folder.parent).free
    if free < wanted.disk_bytes:
        raise OSError(
            errno.ENOSPC,
            f"the environment {wanted.name} needs about {wanted.disk_bytes / 1e9:.1f} GB of disk and "
            f"{free / 1e9:.1f} GB are free: free some space, then run the same command again",
        )
    where = "to fetch" if wheels is None else "of local wheels"
    report(
        f"making the environment {wanted.name}: {wanted.packages} packages, "
        f"{wanted.download_bytes / 1e6:.0f} MB {where}, about {max(1, round(wanted.seconds / 60))} min"
    )
    shutil.rmtree(wanted.folder, ignore_errors=True)
    try:
        _run([str(base), "-m", "venv", *_without_pip(), str(wanted.folder)], wanted.name, report)
        _install(wanted, report, wheels)
        _verify(wanted, module)
    except BaseException:
        shutil.rmtree(wanted.folder, ignore_errors=True)
        raise
    stamp = {"lock": wanted.digest, "name": wanted.name}
    temporary = wanted.folder / (STAMP + ".tmp")
    temporary.write_text(json.dumps(stamp) + "\n")
    temporary.rename(wanted.folder / STAMP)
    report(f"environment {wanted.name} is ready")


def pip_for(python: Path) -> list[str]:
    """The start of a command of pip for the environment of ``python``, with this interpreter's pip if any."""
    if _without_pip():
        return [sys.executable, "-m", "pip", "--python", str(python)]
    return [str(python), "-m", "pip"]


def _without_pip() -> list[str]:
    """The option of venv that leaves out pip, which takes longer to make than the rest of the environment."""
    return ["--without-pip"] if importlib.util.find_spec("pip") else []


def _install(wanted: EnvironmentPlan, report: Progress, wheels: Path | None) -> None:
    command = [*pip_for(wanted.python), "install", "--require-hashes", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "-r", str(wanted.lock)]
    if wheels is not None:
        return _run([*command, "--no-index", "--find-links", str(wheels)], wanted.name, report)
    links = extra_links(wanted.name)
    try:
        _run(command, wanted.name, report)
    except NoWheel:
        if links is None:
            raise
        report(f"pip's sources do not have it, trying {links}")
        _run([*command, "--retries=1", "--timeout=20", "--find-links", links], wanted.name, report)


def _run(command: list[str], name: str, report: Progress) -> None:
    """Run one step of the build and report pip's progress; raises the exception that its output indicates."""
    tail: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail = [*tail[-199:], line.rstrip()]
            if line.startswith("Collecting "):
                report("  " + line.strip().split(" (from", 1)[0])
            elif line.startswith("Installing collected"):
                report("  Installing")
    if process.returncode != 0:
        raise explain(name, tail)


def _verify(wanted: EnvironmentPlan, module: str) -> None:
    """EnvironmentMissing where a CPU build contains CUDA packages, or the framework cannot be imported."""
    if wanted.name.endswith("-cpu"):
        strays = sorted(
            path.name for path in wanted.folder.glob("lib/python*/site-packages/nvidia_*.dist-info")
        )
        if strays:
            raise EnvironmentMissing(
                f"the CPU build {wanted.name} contains CUDA packages ({', '.join(strays[:3])} …): "
                f"{wanted.lock.name} does not pin a CPU build, fix the lock"
            )
    code = f"import {module}"
    answer = subprocess.run([str(wanted.python), "-c", code], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        raise EnvironmentMissing(
            f"{wanted.name} was installed but `{code}` fails ({last[:200]}): install the system library "
            "it names, then run the same command again"
        )
