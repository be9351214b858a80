"""Environments are made once, whole or not at all, and every failure says how to fix it."""

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


class House:
    """A project with one small framework of its own, installed from a folder of wheels, without network."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.wheels = root / "wheels"
        self.pins: dict[str, str] = {}
        monkeypatch.setattr(environments, "ROOT", root)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(self.wheels))
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")

    def lock(self, *names: str, download: int = 1000, accelerator: str = "cpu") -> None:
        """Lock the named wheels of this house for the framework ``tiny``."""
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
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """A house with the wheel ``tiny`` locked."""
    built = House(tmp_path, monkeypatch)
    built.wheel("tiny")
    built.lock("tiny")
    return built


@needs_python
def test_made_once_by_two_builders_and_again_when_cut_off(house: House) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: environments.ensure("tiny", "cpu", progress=said.append), range(2))
    assert first == second
    assert said.count("environment tiny-cpu is ready") == 1
    answer = subprocess.run(
        [str(first), "-c", "import tiny; print(tiny.VALUE)"], check=True, capture_output=True, text=True
    )
    assert answer.stdout == "1\n"
    assert environments.plan("tiny", "cpu").ready

    (first.parents[1] / environments.STAMP).unlink()
    assert not environments.plan("tiny", "cpu").ready
    said.clear()
    environments.ensure("tiny", "cpu", progress=said.append)
    assert "environment tiny-cpu is ready" in said


@needs_python
def test_a_changed_lock_is_another_environment(house: House) -> None:
    before = environments.plan("tiny", "cpu").folder
    house.wheel("second")
    house.lock("tiny", "second")
    assert environments.plan("tiny", "cpu").folder != before


@needs_python
def test_a_wheel_that_differs_from_the_lock_is_refused_and_nothing_is_left(house: House) -> None:
    house.wheel("tiny", "VALUE = 2\n")  # the lock still holds the digest of the first one
    with pytest.raises(EnvironmentMissing, match="differs from the one locked by hash"):
        environments.ensure("tiny", "cpu")
    assert [path.name for path in (house.root / ".envs").iterdir() if path.is_dir()] == []


@needs_python
def test_a_missing_wheel_and_a_failing_import_are_one_sentence(house: House) -> None:
    house.wheel("broken", "import nowhere_to_be_found\n")
    house.lock("broken")
    with pytest.raises(EnvironmentMissing, match=r"import tiny.* fails \(ModuleNotFoundError"):
        environments.ensure("tiny", "cpu")
    (house.wheels / "broken-1.0-py3-none-any.whl").unlink()
    with pytest.raises(NoWheel, match=r"the wheel broken==1\.0 for tiny-cpu was not found") as caught:
        environments.ensure("tiny", "cpu")
    assert "\n" not in str(caught.value)


@needs_python
def test_cuda_packages_on_a_cpu_build_are_refused(house: House) -> None:
    house.wheel("nvidia_stray")
    house.lock("tiny", "nvidia_stray")
    with pytest.raises(EnvironmentMissing, match="brought CUDA packages"):
        environments.ensure("tiny", "cpu")


def test_nothing_over_one_gigabyte_is_fetched_unasked(house: House) -> None:
    house.lock("tiny", download=2_800_000_000, accelerator="cuda")
    with pytest.raises(LargeDownload) as caught:
        environments.ensure("tiny", "cuda")
    assert caught.value.size == 2_800_000_000
    assert caught.value.disk > caught.value.size
    assert "make environments FRAMEWORK=tiny FETCH=1" in str(caught.value)
    assert not (house.root / ".envs").exists()


def test_no_lock_names_what_there_is(house: House) -> None:
    with pytest.raises(EnvironmentMissing, match="only cpu"):
        environments.plan("tiny", "cuda")
    with pytest.raises(EnvironmentMissing, match="choose one of tiny"):
        environments.plan("tinny", "cpu")


def test_a_full_disk_is_told_beforehand(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(house.root)
    house.lock("tiny", download=usage.total)
    with pytest.raises(OSError, match="make room") as caught:
        environments.ensure("tiny", "cpu", allow_large=True)
    assert caught.value.errno == errno.ENOSPC


def test_no_python_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "python"), raising=False)
    with pytest.raises(EnvironmentMissing, match=r"Python 3\.11 was not found on PATH.*apt-get install"):
        environments.find_python()


@pytest.mark.parametrize("visible", ["", "-1", " "])
def test_hidden_gpus_mean_cpu(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert environments.accelerator() == "cpu"


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            OSError,
            "room",
        ),
        ("OSError: [Errno 30] Read-only file system: '/x'", OSError, "read-only"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
            EnvironmentMissing,
            "hash",
        ),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", NoWheel, "no source of pip's has it"),
        ("urllib3.exceptions.ReadTimeoutError: ReadTimeout", EnvironmentMissing, "connect to the network"),
        ("error: command 'gcc' failed: No such file", EnvironmentMissing, "build-essential"),
        ("something else", EnvironmentMissing, "something else"),
    ],
)
def test_what_pip_says_becomes_one_sentence(line: str, kind: type[Exception], says: str) -> None:
    error = explain("tiny-cpu", ["Collecting tiny", line])
    assert type(error) is kind
    assert says in str(error)
    assert "\n" not in str(error)


def test_every_lock_is_hashed_and_sized() -> None:
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


def test_the_command_line_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["environments", "nope", "--accelerator", "cpu"]) == 13
    assert "choose one of mxnet, pytorch, tensorflow" in capsys.readouterr().err


def test_the_tools_that_prepare_text_are_locked_by_hash() -> None:
    plan = environments.tools_plan("data")
    lines = [line for line in plan.lock.read_text().splitlines() if not line.lstrip().startswith("#")]
    packages = [line.split("==")[0] for line in lines if "==" in line]
    assert {"sacremoses", "subword-nmt"} <= set(packages)
    assert len(packages) == plan.packages
    starts = [at for at, line in enumerate(lines) if "==" in line]
    assert all("--hash=sha256:" in lines[at + 1] for at in starts)
    assert plan.folder.name == f"data-{plan.digest[:8]}"
