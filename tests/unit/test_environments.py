"""Environments are made once, never partially, and every failure names its fix."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suite.cli import main as cli
from suite.environments import environments
from suite.environments.errors import EnvironmentMissing, LargeDownload, NoWheel, explain

needs_python = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) and shutil.which("python3.11") is None, reason="no Python 3.11"
)


def make_wheel(folder: Path, name: str, body: str = "VALUE = 1\n") -> str:
    """A real wheel of one module, written by hand; returns its sha256."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    target = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return hashlib.sha256(target.read_bytes()).hexdigest()


class Project:
    """A project with one small framework, installed from a folder of wheels, without network."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.wheels = root / "wheels"
        self.pins: dict[str, str] = {}
        monkeypatch.setattr(environments, "ROOT", root)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(self.wheels))
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")

    def lock(self, *names: str, download: int = 1000, accelerator: str = "cpu") -> None:
        """Lock the named wheels for the framework ``tiny``."""
        folder = self.root / "containers" / "tiny"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}==1.0 --hash=sha256:{self.pins[name]}\n" for name in names]
        (folder / f"requirements-{accelerator}.txt").write_text("".join(lines))
        entry = {"packages": len(names), "download_bytes": download, "unpacked_bytes": None}
        sizes = self.root / "containers" / "sizes.json"
        known = json.loads(sizes.read_text()) if sizes.exists() else {}
        sizes.write_text(json.dumps({**known, f"tiny-{accelerator}": entry}))

    def wheel(self, name: str, body: str = "VALUE = 1\n") -> None:
        """Put a wheel where pip finds it."""
        self.pins[name] = make_wheel(self.wheels, name, body)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the wheel ``tiny`` locked."""
    built = Project(tmp_path, monkeypatch)
    built.wheel("tiny")
    built.lock("tiny")
    return built


@needs_python
def test_concurrent_builds_make_one_environment_and_interrupted_build_is_repeated(project: Project) -> None:
    lines: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda _: environments.ensure("tiny", "cpu", progress=lines.append), range(2)
        )
    assert first == second
    assert lines.count("environment tiny-cpu is ready") == 1
    answer = subprocess.run(
        [str(first), "-c", "import tiny; print(tiny.VALUE)"], check=True, capture_output=True, text=True
    )
    assert answer.stdout == "1\n"
    assert environments.plan("tiny", "cpu").ready

    (first.parents[1] / environments.STAMP).unlink()
    assert not environments.plan("tiny", "cpu").ready
    lines.clear()
    environments.ensure("tiny", "cpu", progress=lines.append)
    assert "environment tiny-cpu is ready" in lines


@needs_python
def test_changed_lock_gives_another_environment(project: Project) -> None:
    before = environments.plan("tiny", "cpu").folder
    project.wheel("second")
    project.lock("tiny", "second")
    assert environments.plan("tiny", "cpu").folder != before


@needs_python
def test_wheel_with_another_hash_is_refused_and_leaves_nothing(project: Project) -> None:
    project.wheel("tiny", "VALUE = 2\n")  # the lock still holds the digest of the first one
    with pytest.raises(EnvironmentMissing, match="differs from the one locked by hash"):
        environments.ensure("tiny", "cpu")
    assert [path.name for path in (project.root / ".envs").iterdir() if path.is_dir()] == []


@needs_python
def test_missing_wheel_and_failing_import_are_reported_in_one_sentence(project: Project) -> None:
    project.wheel("broken", "import nowhere_to_be_found\n")
    project.lock("broken")
    with pytest.raises(EnvironmentMissing, match=r"import tiny.* fails \(ModuleNotFoundError"):
        environments.ensure("tiny", "cpu")
    (project.wheels / "broken-1.0-py3-none-any.whl").unlink()
    with pytest.raises(NoWheel, match=r"the wheel broken==1\.0 for tiny-cpu was not found") as caught:
        environments.ensure("tiny", "cpu")
    assert "\n" not in str(caught.value)


@needs_python
def test_cuda_packages_in_a_cpu_build_are_refused(project: Project) -> None:
    project.wheel("nvidia_stray")
    project.lock("tiny", "nvidia_stray")
    with pytest.raises(EnvironmentMissing, match="contains CUDA packages"):
        environments.ensure("tiny", "cpu")


def test_download_over_one_gigabyte_needs_consent(project: Project) -> None:
    project.lock("tiny", download=2_800_000_000, accelerator="cuda")
    with pytest.raises(LargeDownload) as caught:
        environments.ensure("tiny", "cuda")
    assert "2.8 GB (about 7.0 GB on disk" in str(caught.value)
    assert "make environments FRAMEWORK=tiny FETCH=1" in str(caught.value)
    assert not (project.root / ".envs").exists()


def test_missing_lock_names_the_existing_ones(project: Project) -> None:
    with pytest.raises(EnvironmentMissing, match="only cpu"):
        environments.plan("tiny", "cuda")
    with pytest.raises(EnvironmentMissing, match="choose one of tiny"):
        environments.plan("tinny", "cpu")


def test_full_disk_is_reported_before_the_build(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(project.root)
    project.lock("tiny", download=usage.total)
    with pytest.raises(OSError, match="free some space") as caught:
        environments.ensure("tiny", "cpu", allow_large=True)
    assert caught.value.errno == errno.ENOSPC


def test_missing_python_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "python"), raising=False)
    with pytest.raises(EnvironmentMissing, match=r"Python 3\.11 was not found on PATH.*apt-get install"):
        environments.find_python()


@pytest.mark.parametrize("visible", ["", "-1", " "])
def test_hidden_gpus_select_the_cpu(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert environments.accelerator() == "cpu"


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            OSError,
            "free space",
        ),
        ("OSError: [Errno 30] Read-only file system: '/x'", OSError, "read-only"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
            EnvironmentMissing,
            "hash",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0+cpu",
            NoWheel,
            "none of pip's sources has it",
        ),
        ("urllib3.exceptions.ReadTimeoutError: ReadTimeout", EnvironmentMissing, "connect to the network"),
        ("error: command 'gcc' failed: No such file", EnvironmentMissing, "build-essential"),
        ("something else", EnvironmentMissing, "something else"),
    ],
)
def test_pip_errors_become_one_sentence(line: str, kind: type[Exception], expected: str) -> None:
    error = explain("tiny-cpu", ["Collecting tiny", line])
    assert type(error) is kind
    assert expected in str(error)
    assert "\n" not in str(error)


def test_every_lock_has_hashes_and_sizes() -> None:
    for framework in environments.frameworks():
        for accel in environments.accelerators(framework):
            wanted = environments.plan(framework, accel)
            pins = [
                line for line in wanted.lock.read_text().splitlines() if "==" in line and line[0] not in " #"
            ]
            assert len(pins) == wanted.packages
            assert wanted.lock.read_text().count("--hash=sha256:") >= len(pins)
            names = {line.split("==")[0] for line in pins}
            assert any(name.startswith("nvidia") for name in names) == (accel == "cuda")
            assert wanted.download_bytes > 0


def test_command_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["environments", "nope", "--accelerator", "cpu"]) == 13
    assert "choose one of jax, mxnet, pytorch, tensorflow" in capsys.readouterr().err


def test_text_tools_are_locked_by_hash() -> None:
    plan = environments.tools_plan("data")
    lines = [line for line in plan.lock.read_text().splitlines() if not line.lstrip().startswith("#")]
    packages = [line.split("==")[0] for line in lines if "==" in line]
    assert {"sacremoses", "subword-nmt"} <= set(packages)
    assert len(packages) == plan.packages
    starts = [at for at, line in enumerate(lines) if "==" in line]
    assert all("--hash=sha256:" in lines[at + 1] for at in starts)
    assert plan.folder.name == f"data-{plan.digest[:8]}"
